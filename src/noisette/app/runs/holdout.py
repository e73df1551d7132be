"""The part of the training examples that a search chooses by, and that no run is trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from noisette.app.datasets import Dataset
from noisette.errors import InvalidInput

__all__ = ["holdout_mask", "split"]


def holdout_mask(names: Iterable[object], share: float) -> Tensor:
    """Which of `names` are held out, bool (N,): about `share` of them.

    The side of a name follows from it alone, by a hash that everybody can compute: so whoever comes or goes moves
    nobody else. Examples have the number of their slot for a name, people their id.

    >>> holdout_mask(range(1000), 0.2).sum().item(), holdout_mask(["ada", "bob", "ada"], 0.5).tolist()
    (205, [True, False, True])
    """
    limit = int(share * 2.0**64)
    hashes = (hashlib.blake2b(f"noisette held out {name}".encode(), digest_size=8).digest() for name in names)
    return torch.tensor([int.from_bytes(one) < limit for one in hashes], dtype=torch.bool)


def split(data: Dataset, share: float) -> tuple[Dataset, Dataset]:
    """`data` without the training examples that are held out, and with these alone. Nobody's are on both sides."""
    units = data.train_units
    out = holdout_mask(range(len(data.train_inputs)) if units is None else units, share)
    if out.all() or not out.any():
        raise InvalidInput(
            f"a share of {share:g} of {data.sampled} {'examples' if units is None else 'people'} leaves nothing on one "
            "side.",
            hint="hold out another share, or choose by public data",
        )
    return _of(data, ~out), _of(data, out)


def _of(data: Dataset, kept: Tensor) -> Dataset:
    units = data.train_units
    return replace(
        data,
        train_inputs=data.train_inputs[kept],
        train_targets=data.train_targets[kept],
        train_units=None if units is None else tuple(one for one, is_in in zip(units, kept, strict=True) if is_in),
    )
