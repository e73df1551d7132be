"""Groups of examples that are encoded as one: those of a unit, or of a micro-batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from noisette._private import Private
from noisette.encoders import Encoder
from noisette.training._datasets import Index

__all__ = ["GroupedEncoder"]


class GroupedEncoder:
    """Adds up the encodings of groups. Rows are kept until their group is whole, and no longer.

    The rows of a group are added in the order of their positions in the draw, in whatever order they come: sums of
    floats depend on it, and the order in which rows come depends on the examples of other groups.

    >>> from noisette.encoders import L2
    >>> gathering = GroupedEncoder(L2(dim=2), np.array([0, 0, 1]))
    >>> gathering.add(np.array([1, 2]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> gathering.add(np.array([0]), torch.tensor([[0.0, 0.0]]))
    >>> gathering.total.unsafe_values()
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    def __init__(self, encoder: Encoder, groups: Index) -> None:
        self._encoder, self._groups, self._missing = encoder, groups, np.bincount(groups)
        self._kept: list[tuple[Index, Tensor]] = []
        self.total: Private | None = None

    def add(self, positions: Index, rows: Tensor) -> None:
        """Take the gradients `rows` (n, dim) of examples at `positions` (n,); the rows may be overwritten afterward."""
        np.subtract.at(self._missing, self._groups[positions], 1)
        waiting, self._kept = [*self._kept, (positions, rows)], []
        whole, ready = list[Index](), list[Tensor]()
        for some, held in waiting:
            done = self._missing[self._groups[some]] == 0
            whole.append(some[done])
            ready.append(held[torch.from_numpy(done).to(held.device)])
            if not done.all():
                self._kept.append((some[~done], held[torch.from_numpy(~done).to(held.device)]))
        if any(map(len, whole)):
            found = np.concatenate(whole)
            order = np.argsort(found)
            groups = torch.from_numpy(self._groups[found[order]]).to(rows.device)
            encoded = self._encoder.encode_sum(torch.cat(ready)[torch.from_numpy(order).to(rows.device)], groups)
            self.total = encoded if self.total is None else self.total + encoded
