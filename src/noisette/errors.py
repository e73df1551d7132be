"""Errors that name the fix: one sentence, a blank line, ``hint: ...``."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

__all__ = [
    "BudgetSpent",
    "InvalidInput",
    "LedgerError",
    "MechanismMismatch",
    "MissingExtra",
    "NoisetteError",
    "ParseError",
    "ProcessLost",
    "Unaccountable",
    "Unreadable",
]


class NoisetteError(Exception):
    """Base of every error that the library raises on purpose.

    >>> print(InvalidInput("rate is 1.5, outside (0, 1].", hint="use batch / examples"))
    rate is 1.5, outside (0, 1].
    <BLANKLINE>
    hint: use batch / examples
    """

    def __init__(self, sentence: str, *, hint: str) -> None:
        super().__init__(f"{sentence}\n\nhint: {hint}")
        self.sentence = sentence
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), hint=self.hint), (self.sentence,)  # so that it can come from another process


class InvalidInput(NoisetteError, ValueError):
    """A value from outside that has no meaning here."""


class ParseError(InvalidInput):
    """A text that does not describe a noise, an encoder, a profile or a mechanism."""


class Unaccountable(NoisetteError):
    """A mechanism whose worst case is not known, so that no epsilon can be claimed for it."""


class MechanismMismatch(NoisetteError):
    """A run, ledger or checkpoint that belongs to another mechanism."""


class BudgetSpent(NoisetteError):
    """A step beyond the last one that the mechanism pays for."""


class MissingExtra(NoisetteError, ImportError):
    """A package that the base install leaves out, because most people do without it.

    >>> print(MissingExtra.of("scikit-learn", extra="sklearn"))
    scikit-learn is not installed.
    <BLANKLINE>
    hint: install the extra: pip install "noisette[sklearn]"
    """

    @classmethod
    def of(cls, package: str, *, extra: str) -> Self:
        """The error for a `package` that the extra of that name brings."""
        return cls(f"{package} is not installed.", hint=f'install the extra: pip install "noisette[{extra}]"')


class ProcessLost(NoisetteError):
    """Another process of the same run died, or says nothing any more."""


class Unreadable(NoisetteError):
    """An example that cannot be read, or a process that reads them and died."""


class LedgerError(NoisetteError):
    """A ledger that is missing, edited or cannot be written."""
