"""What a trainer of others iterates over: turns, and no examples. The private run draws those itself."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from noisette.mechanism import Mechanism

__all__ = ["epoch", "turns"]


def turns(steps: int) -> DataLoader[Any]:
    """A DataLoader of `steps` empty batches.

    >>> list(turns(2))
    [{}, {}]
    """
    return DataLoader(range(steps), batch_size=1, collate_fn=_nothing)  # type: ignore[arg-type]


def _nothing(_: list[int]) -> dict[str, Any]:
    return {}


def epoch(mechanism: Mechanism) -> int:
    """The steps in which every example is drawn once on average, at most all steps of the mechanism.

    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
    >>> epoch(Mechanism(L2(), Gaussian(), rate=0.1, steps=100))
    10
    """
    return max(1, min(mechanism.steps, round(1 / mechanism.rate)))
