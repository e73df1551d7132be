"""The part of the training examples that a search chooses by, and that no run is trained on."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from torch import Tensor

from noisette.data import Dataset
from noisette.errors import InvalidInput

__all__ = ["parted", "slots"]


def slots(count: int, share: float) -> Tensor:
    """Which of `count` slots of a data set are held out, bool (count,): about `share` of them.

    A slot's side follows from its number alone, by a hash that everybody can compute, and from nothing else: so the
    numbers of examples on both sides are as public as `count`, and whoever fills a slot or leaves it moves nobody else.

    >>> slots(1000, 0.2).sum().item(), bool((slots(1000, 0.2)[:10] == slots(10, 0.2)).all())
    (205, True)
    """
    limit = int(share * 2.0**64)
    sides = [
        int.from_bytes(hashlib.blake2b(f"noisette held out {slot}".encode(), digest_size=8).digest()) < limit
        for slot in range(count)
    ]
    return torch.tensor(sides, dtype=torch.bool)


def parted(data: Dataset, share: float) -> tuple[Dataset, tuple[Tensor, Tensor]]:
    """`data` without the training examples that are held out, and these: inputs (M, ...) and targets (M,)."""
    out = slots(len(data.train_inputs), share)
    if out.all() or not out.any():
        raise InvalidInput(
            f"a share of {share:g} of {len(out)} examples leaves nothing on one side.",
            hint="hold out another share, or choose by public data",
        )
    kept = replace(data, train_inputs=data.train_inputs[~out], train_targets=data.train_targets[~out])
    return kept, (data.train_inputs[out], data.train_targets[out])
