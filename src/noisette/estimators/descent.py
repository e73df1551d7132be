"""Private descent on all rows at once: how the linear estimators are trained."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from noisette._gradients import Loss
from noisette.accounting import Ledger
from noisette.encoders import L2
from noisette.estimators.base import Array, PrivateEstimator, Range
from noisette.mechanism import Guarantee, Mechanism
from noisette.training import make_private, plan

__all__ = ["Descent", "Fitted", "LinearEstimator"]

_CHUNK = 4096  # rows at a time: a linear layer's gradients take little memory


@dataclass(frozen=True)
class Fitted:
    """What came out: `weights` (K, F) and `biases` (K,), float64, with the mechanism that they cost and its promise."""

    weights: Array
    biases: Array
    mechanism: Mechanism
    guarantee: Guarantee


@dataclass(frozen=True)
class Descent:
    """How far gradients reach (`radius`), and how fast: `rate` times the root of rows over noise, at most `most`.

    Tables have few columns and often few rows. With every row in every step there is nothing to sample, and a few
    dozen noisy steps go as far as the budget allows. A step of this length keeps the noise, which adds up over the
    steps, below what was learnt; it is computed from public numbers alone.
    """

    radius: float
    rate: float
    most: float

    def fit(
        self,
        data: tuple[Tensor, Tensor],
        outputs: int,
        loss: Loss,
        *,
        epsilon: float,
        delta: float,
        steps: int,
        ledgers: Sequence[Ledger],
        seed: int | None,
    ) -> Fitted:
        """A linear map from rows (N, F) to `outputs` numbers, by `steps` private steps that start at zero."""
        model, rows = nn.Linear(data[0].shape[1], outputs), len(data[0])
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        encoder = L2(radius=self.radius)
        mechanism = plan(model, data, epsilon=epsilon, delta=delta, batch=rows, steps=steps, encoder=encoder)
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "fit.jsonl", data="one fit") as own:
            # a run counts the steps in its first ledger as its own: those of an earlier fit must not end this one
            books = (own, *ledgers)
            private = make_private(model, loss, data, mechanism, ledger=books, chunk=min(rows, _CHUNK), seed=seed)
            optimizer = torch.optim.SGD(model.parameters(), lr=self._length(mechanism, rows), momentum=0.5)
            fading = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / steps, total_iters=steps)
            for _ in private:
                optimizer.step()
                fading.step()
        weights, biases = (p.detach().double().numpy() for p in (model.weight, model.bias))
        return Fitted(np.array(weights), np.array(biases), mechanism, private.guarantee(delta))

    def _length(self, mechanism: Mechanism, rows: int) -> float:
        """The first step's length; the others fade linearly."""
        clear = rows * self.radius * math.sqrt(mechanism.steps) / mechanism.noise.known_scale
        return min(self.most, self.rate * math.sqrt(clear)) / self.radius


class LinearEstimator(PrivateEstimator):
    """An estimator that is fitted by private descent: it has `steps`, and `mechanism_` when it is fitted."""

    mechanism_: Mechanism

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Range | None = None,
        *,
        steps: int = 40,
        ledger: str | Path | None = None,
        people: str | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, ledger=ledger, people=people, random_state=random_state)
        self.steps = steps

    def _descend(self, descent: Descent, data: tuple[Tensor, Tensor], outputs: int, loss: Loss) -> Fitted:
        """Fit, pay and keep what it cost."""
        with self._books() as books:
            found = descent.fit(
                data, outputs, loss, epsilon=self.epsilon, delta=self.delta,
                steps=self.steps, ledgers=books, seed=self._seed(),
            )  # fmt: skip
        self.mechanism_, self.guarantee_ = found.mechanism, found.guarantee
        return found
