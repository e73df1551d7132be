"""`Accountant`: one way to bound the epsilon of mechanisms. One file each; subclassing registers it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from noisette._spec import named
from noisette.accounting.best_of import BestOf, Expenditure, component_mechanisms
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import Mechanism, Mechanisms

__all__ = ["Accountant", "accountant", "accountants", "known"]


class Accountant(ABC):
    """A bound on epsilon, computed from mechanisms alone.

    `name` is what the command line and guarantees call it. Accountants hold nothing: two of one class are the same.
    `searches` says that it takes a `BestOf` among the mechanisms; an accountant that does not is never given one.
    `cuts` says that it takes mechanisms whose batches are cut; else it is asked for uncut ones, and
    `noisette.accounting._truncation` adds what the cut costs at most, which is more.

    **Formal guarantees.** For every mechanism that it `supports`, with a certified noise, `epsilon` is an upper bound.
    """

    name: ClassVar[str]
    supports_best_of: ClassVar[bool] = False
    cuts: ClassVar[bool] = False

    def supports(self, mechanism: Mechanism) -> bool:
        """Whether the worst case of this kind of step is known to it.

        By default that is so for every profile, and for a ball where the noise looks the same from all sides.
        """
        return (self.cuts or mechanism.sampling.max_batch is None) and (
            mechanism.noise.rotation_invariant or bool(mechanism.encoder.image.profiles)
        )

    @abstractmethod
    def epsilon(self, mechanisms: Mechanisms, delta: float) -> float:
        """The epsilon at `delta` of mechanisms with at least one step, NaN or infinite where none can be told."""

    @abstractmethod
    def bound_method(self, mechanisms: Mechanisms) -> str:
        """How their images were bounded, in a few words."""


def accountants() -> dict[str, Accountant]:
    """Every accountant by name.

    >>> list(accountants())
    ['pld', 'rdp', 'rdp-classic']
    """
    return named(Accountant)


def accountant(name: str, mechanisms: Expenditure) -> Accountant:
    """The accountant called `name`, if it can account for each of `mechanisms`.

    >>> accountant("moments", ())
    Traceback (most recent call last):
    noisette.errors.InvalidInput: accountant is 'moments', not known.
    <BLANKLINE>
    hint: choose one of pld, rdp, rdp-classic
    """
    chosen = known(name)
    refused = [mechanism for mechanism in mechanisms if not _supports(chosen, mechanism)]
    if refused:
        others = [other for other, one in accountants().items() if all(_supports(one, each) for each in mechanisms)]
        raise Unaccountable(
            f"{name} does not know the worst case of {refused[0]!r}.",
            hint=f"choose one of {', '.join(others)}" if others else "use a noise that others account for",
        )
    return chosen


def known(name: str) -> Accountant:
    """The accountant called `name`."""
    if name not in accountants():
        raise InvalidInput(f"accountant is {name!r}, not known.", hint=f"choose one of {', '.join(accountants())}")
    return accountants()[name]


def _supports(one: Accountant, thing: Mechanism | BestOf) -> bool:
    return (one.supports_best_of or isinstance(thing, Mechanism)) and all(
        map(one.supports, component_mechanisms((thing,)))
    )
