"""The `BestOf`: the one frozen value that decides the epsilon of choosing the best of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from noisette._spec import Spec, entries
from noisette.accounting.num_trials import NumTrials
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism, mechanisms_hash

__all__ = ["BestOf", "Expenditure", "component_mechanisms", "to_expenditure"]


@final
@dataclass(frozen=True)
class BestOf(Spec):
    """Draw a number K from the law `trials`; make K runs, each by one of the mechanisms `runs`; keep the best.

    Which of `runs` a run has is drawn independently of the data and of the other runs. A run is chosen by its score,
    a number that is public, or a release by the mechanism `score` on examples that no run is trained on. The chosen run
    is published with its score, and nothing else is: neither K nor the other runs.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> from noisette.accounting.num_trials import GeometricNumTrials
    >>> mechanism = Mechanism(L2(dim=9), Gaussian(scale=9.0), rate=0.1, steps=100)
    >>> BestOf((mechanism,), GeometricNumTrials(10)).steps
    1
    """

    runs: tuple[Mechanism, ...]
    trials: NumTrials
    score: Mechanism | None = None

    steps: ClassVar[int] = 1  # a search is paid for at once

    def __post_init__(self) -> None:
        runs = entries("runs", self.runs)
        if not runs or not all(isinstance(run, Mechanism) for run in runs):
            raise InvalidInput("runs are not mechanisms.", hint="give a tuple of one mechanism or more")
        if not isinstance(self.trials, NumTrials):
            raise InvalidInput("trials is not a law.", hint="write for example LogarithmicNumTrials(20)")
        if self.score is not None and not isinstance(self.score, Mechanism):
            raise InvalidInput("score is not a mechanism.", hint="leave it out where scores are public")
        self._set(runs=tuple(dict.fromkeys(runs)))
        for piece in self.pieces:
            _ = piece.noise.known_scale, piece.encoder.known_dim  # what is open has no price
            if piece.steps < 1:
                raise InvalidInput("a run of no steps has nothing to be chosen by.", hint="give it steps")

    @property
    def pieces(self) -> tuple[Mechanism, ...]:
        """All mechanisms in it."""
        return self.runs if self.score is None else (*self.runs, self.score)

    @property
    def hash(self) -> str:
        """A name for exactly this value: SHA-256 of its canonical form, 16 hex digits."""
        return mechanisms_hash((self,))


Expenditure = tuple[Mechanism | BestOf, ...]
"""All that was spent on some people, or is going to be."""


def to_expenditure(things: Mechanism | BestOf | Sequence[Mechanism | BestOf]) -> Expenditure:
    """One mechanism or search, or several, as a tuple."""
    return (things,) if isinstance(things, Mechanism | BestOf) else tuple(things)


def component_mechanisms(spending: Sequence[Mechanism | BestOf]) -> tuple[Mechanism, ...]:
    """Every mechanism in `spending`, those of its searches included."""
    return tuple(piece for one in spending for piece in (one.pieces if isinstance(one, BestOf) else (one,)))
