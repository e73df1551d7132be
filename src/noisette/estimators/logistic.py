"""Logistic regression of a table with differential privacy."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from noisette.errors import InvalidInput
from noisette.estimators.base import Array, Scale, tensor
from noisette.estimators.descent import Descent, LinearEstimator

__all__ = ["PrivateLogisticRegression"]

_DESCENT = Descent(radius=0.5, rate=0.25, most=16.0)


class PrivateLogisticRegression(ClassifierMixin, LinearEstimator):
    """Softmax regression whose coefficients hide every single row.

    Args:
        epsilon: The budget of a fit, for adding or removing one row.
        delta: Failure probability, below one over the number of rows.
        bounds: Public bounds ``(low, high)`` of the columns, numbers or one for each column; required. Values outside
            are cut off. Bounds that were read off the rows cost the guarantee.
        steps: How many steps to take over all rows.
        ledger: Path of the ledger of these people, which is paid before anything is released.
        people: A public name for them, where the ledger is new.
        random_state: A whole number makes a fit that can be repeated and must not be published.

    Fitted: ``coef_`` (K, F), or (1, F) of two classes, and ``intercept_`` for values as they come in, ``classes_``
    (K,), ``epsilon_``, ``guarantee_`` and ``mechanism_``. The number of rows and the list of classes are public.

    **Formal guarantees.** What is fitted is ``mechanism_``: `steps` gradients over all rows, clipped, with Gaussian
    noise. Everything else is computed from those and from public numbers.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = PrivateLogisticRegression(epsilon=3.0, bounds=(0, [8, 5, 7, 3])).fit(x, y)
    >>> print(model.guarantee_)
    epsilon = 2.999 at delta = 1e-05
    >>> bool(model.score(x, y) > 0.6)
    True
    """

    def fit(self, X: Array, y: Array) -> Self:
        """Fit rows `X` (N, F) with classes `y` (N,), which may be of any kind."""
        X, y = self._rows_and_targets(X, y, numbers=False)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InvalidInput("the rows have one class only.", hint="give rows of at least two classes")
        scale = Scale(self.bounds, "bounds", columns=X.shape[1])
        data = tensor(scale.rows(X)), torch.from_numpy(numbers)
        found = self._descend(_DESCENT, data, len(classes), nn.CrossEntropyLoss())
        weights, biases = found.weights, found.biases
        if len(biases) == 2:  # one line says as much as two
            weights, biases = weights[1:] - weights[:1], biases[1:] - biases[:1]
        self.classes_ = classes  # not before: a fit that is refused leaves those of the last one
        self.coef_ = weights / scale.half
        self.intercept_ = biases - self.coef_ @ scale.middle
        return self

    def decision_function(self, X: Array) -> Array:
        """Scores (N, K) of the classes, or (N,) of the second of two."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        scores = X @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict_proba(self, X: Array) -> Array:
        """Probabilities (N, K) of the classes."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        return np.asarray(softmax(scores, axis=1))

    def predict(self, X: Array) -> Array:
        """The likeliest class (N,) of each row."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])
