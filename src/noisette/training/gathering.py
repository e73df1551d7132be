"""Groups of examples that are encoded as one: those of a unit, or of a micro-batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from noisette.encode import Encoder
from noisette.private import Private
from noisette.training.examples import Index

__all__ = ["Gathering"]


class Gathering:
    """Adds up the encodings of groups. Rows are kept until their group is whole, and no longer.

    >>> from noisette import L2
    >>> gathering = Gathering(L2(dim=2), np.array([0, 0, 1]))
    >>> gathering.add(np.array([0, 1]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> gathering.add(np.array([0]), torch.tensor([[0.0, 0.0]]))
    >>> gathering.total.unsafe_values()
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    def __init__(self, encoder: Encoder, groups: Index) -> None:
        self._encoder, self._missing = encoder, np.bincount(groups)
        self._kept: list[tuple[Index, Tensor]] = []
        self.total: Private | None = None

    def add(self, groups: Index, rows: Tensor) -> None:
        """Take the gradients `rows` (n, dim) of examples in `groups` (n,); the rows may be overwritten after that."""
        np.subtract.at(self._missing, groups, 1)
        waiting, self._kept = [*self._kept, (groups, rows)], []
        told, ready = list[Index](), list[Tensor]()
        for some, held in waiting:
            done = self._missing[some] == 0
            told.append(some[done])
            ready.append(held[torch.from_numpy(done).to(held.device)])
            if not done.all():
                self._kept.append((some[~done], held[torch.from_numpy(~done).to(held.device)]))
        if any(map(len, told)):
            whole = torch.from_numpy(np.concatenate(told)).to(rows.device)
            found = self._encoder.encode_sum(torch.cat(ready), whole)
            self.total = found if self.total is None else self.total + found
