"""Means and spreads of a table's columns with differential privacy, to standardise them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from noisette.estimators.base import Array, PrivateEstimator, Scale
from noisette.private_means import plan_means, private_means

__all__ = ["PrivateStandardScaler"]


class PrivateStandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """Brings columns to mean 0 and spread 1, by means and mean squares that hide every single row.

    Args:
        epsilon: The budget of a fit, for adding or removing one row.
        delta: Failure probability, below one over the number of rows.
        bounds: Public bounds ``(low, high)`` of the columns, numbers or one for each column; required. Values outside
            are cut off, in a fit and in `transform`.
        ledger: Path of the ledger of these people, which is paid before anything is released.
        people: A public name for them, where the ledger is new.
        random_state: A whole number makes a fit that can be repeated and must not be published.

    Fitted: ``mean_`` (F,), ``var_`` (F,), ``scale_`` (F,), ``epsilon_``, ``guarantee_`` and ``mechanism_``, whose noise
    is the one of the least error for so many numbers. A variance is at least the error that its noise makes.
    ``transformed_bounds_`` are the bounds of what `transform` gives, which are public: the next step can use them.

    **Formal guarantees.** All means and mean squares are one release of ``mechanism_``.

    >>> x = np.random.default_rng(0).normal(170.0, 10.0, size=(5000, 1))
    >>> scaler = PrivateStandardScaler(epsilon=1.0, bounds=(100, 250)).fit(x)
    >>> print(scaler.guarantee_)
    epsilon = 0.9998 at delta = 1e-05
    >>> type(scaler.mechanism_.noise).__name__, bool(abs(scaler.mean_[0] - 170) < 2)
    ('Laplace', True)
    """

    def fit(self, X: Array, y: Any = None) -> Self:  # noqa: ARG002 - pipelines pass it
        """Find means and spreads of the columns of `X` (N, F)."""
        X = self._rows(X, dtype=np.float64)
        scale = Scale(self.bounds, "bounds", columns=X.shape[1])
        rows = torch.from_numpy(scale.rows(X))
        both = torch.cat([rows, rows.square()], dim=1)
        least, most = torch.zeros(both.shape[1]), torch.ones(both.shape[1])
        least[: X.shape[1]] = -1
        mechanism = plan_means(both.shape[1], self.epsilon, self.delta, examples=len(X))
        with self._books() as books:
            found = private_means(both, least, most, mechanism, ledger=books, seed=self._seed())
        means, squares = found.values.chunk(2)
        floor = found.std[X.shape[1] :]  # below it a variance cannot be told from noise
        variances = (squares - means.square()).maximum(floor).numpy()
        self.mean_ = scale.middle + scale.half * means.numpy()
        self.var_ = variances * scale.half**2
        self.scale_ = np.sqrt(self.var_)
        self.transformed_bounds_ = (scale.low - self.mean_) / self.scale_, (scale.high - self.mean_) / self.scale_
        self.mechanism_, self.guarantee_ = found.mechanism, found.guarantee(self.delta)
        return self

    def transform(self, X: Array) -> Array:
        """Rows (N, F) less their means, in units of their spreads."""
        check_is_fitted(self)
        X = self._rows(X, dtype=np.float64, reset=False)
        scale = Scale(self.bounds, "bounds", columns=X.shape[1])
        return np.asarray((np.clip(X, scale.low, scale.high) - self.mean_) / self.scale_)
