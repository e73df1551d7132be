"""Estimators for scikit-learn: private models of tables, for its pipelines. They need the extra ``sklearn``."""

from noisette.errors import MissingExtra

try:
    import sklearn  # noqa: F401
except ImportError:
    raise MissingExtra.of("scikit-learn", extra="sklearn") from None

from noisette.estimators.linear import PrivateLinearRegression
from noisette.estimators.logistic import PrivateLogisticRegression
from noisette.estimators.scaler import PrivateStandardScaler

__all__ = ["PrivateLinearRegression", "PrivateLogisticRegression", "PrivateStandardScaler"]
