"""`Accountant`: one way to bound the epsilon of a run. One file each; subclassing is all that it takes to be known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import Mechanism, Run
from noisette.spec import named

__all__ = ["Accountant", "accountant", "accountants"]


class Accountant(ABC):
    """A bound on epsilon, computed from mechanisms alone.

    `name` is what the command line and guarantees call it. Accountants hold nothing: two of one class are the same.

    **Formal guarantees.** For every mechanism that it `supports`, with a certified noise, `epsilon` is an upper bound.
    """

    name: ClassVar[str]

    def supports(self, mechanism: Mechanism) -> bool:
        """Whether the worst case of this kind of step is known to it.

        By default that is so for every profile, and for a ball where the noise looks the same from all sides.
        """
        return mechanism.noise.rotation_invariant or bool(mechanism.encoder.image.profiles)

    @abstractmethod
    def epsilon(self, run: Run, delta: float) -> float:
        """The epsilon at `delta` of a run with at least one step, NaN or infinite where none can be told."""

    @abstractmethod
    def basis(self, run: Run) -> str:
        """How the images of a run were bounded, in a few words."""


def accountants() -> dict[str, Accountant]:
    """Every accountant by name.

    >>> list(accountants())
    ['pld', 'rdp', 'rdp-classic']
    """
    return named(Accountant)


def accountant(name: str, run: Run) -> Accountant:
    """The accountant called `name`, if it can account for every part of `run`.

    >>> accountant("moments", ())
    Traceback (most recent call last):
    noisette.errors.InvalidInput: accountant is 'moments', not known.
    <BLANKLINE>
    hint: choose one of pld, rdp, rdp-classic
    """
    known = accountants()
    if name not in known:
        raise InvalidInput(f"accountant is {name!r}, not known.", hint=f"choose one of {', '.join(known)}")
    refused = [mechanism for mechanism in run if not known[name].supports(mechanism)]
    if refused:
        others = [other for other, one in known.items() if all(map(one.supports, run))]
        raise Unaccountable(
            f"{name} does not know the worst case of {refused[0]!r}.",
            hint=f"choose one of {', '.join(others)}" if others else "use a noise that others account for",
        )
    return known[name]
