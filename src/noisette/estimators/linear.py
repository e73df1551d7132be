"""Linear regression of a table with differential privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from noisette.estimators.base import Array, Range, Scale, tensor
from noisette.estimators.descent import Descent, LinearEstimator

__all__ = ["PrivateLinearRegression"]

_DESCENT = Descent(radius=0.25, rate=0.02, most=0.4)


class PrivateLinearRegression(RegressorMixin, LinearEstimator):
    """Least squares whose coefficients hide every single row.

    Args:
        epsilon: The budget of a fit, for adding or removing one row.
        delta: Failure probability, below one over the number of rows.
        bounds: Public bounds ``(low, high)`` of the columns, numbers or one for each column; required.
        target_bounds: Public bounds ``(low, high)`` of the target; required. Predictions stay within them.
        steps: How many steps to take over all rows.
        ledger: Path of the ledger of these people, which is paid before anything is released.
        people: A public name for them, where the ledger is new.
        random_state: A whole number makes a fit that can be repeated and must not be published.

    Fitted: ``coef_`` (F,) and ``intercept_`` for values as they come in, ``epsilon_``, ``guarantee_`` and
    ``mechanism_``. Values outside their bounds are cut off in a fit, targets as well. The number of rows is public.

    **Formal guarantees.** What is fitted is ``mechanism_``: `steps` gradients over all rows, clipped, with Gaussian
    noise. Everything else is computed from those and from public numbers.

    >>> from sklearn.datasets import load_diabetes
    >>> x, y = load_diabetes(return_X_y=True)
    >>> model = PrivateLinearRegression(epsilon=3.0, bounds=(-0.2, 0.2), target_bounds=(0, 400)).fit(x, y)
    >>> print(model.guarantee_)
    epsilon = 2.999 at delta = 1e-05
    >>> bool(model.score(x, y) > 0.2)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Range | None = None,
        target_bounds: Range | None = None,
        *,
        steps: int = 40,
        ledger: str | Path | None = None,
        people: str | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, steps=steps, ledger=ledger, people=people, random_state=random_state)
        self.target_bounds = target_bounds

    def fit(self, X: Array, y: Array) -> Self:
        """Fit rows `X` (N, F) with targets `y` (N,)."""
        X, y = self._rows_and_targets(X, y, numbers=True)
        scale = Scale(self.bounds, "bounds", columns=X.shape[1])
        target = Scale(self.target_bounds, "target_bounds", columns=1)
        found = self._descend(_DESCENT, (tensor(scale.rows(X)), tensor(target.rows(y[:, None]))), 1, _halved_square)
        self.coef_ = found.weights[0] / scale.half * target.half[0]
        self.intercept_ = float(found.biases[0] * target.half[0] + target.middle[0] - self.coef_ @ scale.middle)
        return self

    def predict(self, X: Array) -> Array:
        """Targets (N,), within their bounds."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        target = Scale(self.target_bounds, "target_bounds", columns=1)
        return np.asarray(np.clip(X @ self.coef_ + self.intercept_, target.low[0], target.high[0]))


def _halved_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of one example (1, 1) at a time, so that its gradient is the error times the row."""
    return (outputs - targets).square().mean() / 2
