"""Per-example gradients of any torch module, in chunks, and the check that no example touches another's."""

from noisette.gradients.isolation import SHORTEN, batch_statistics, own_randomness, shortening
from noisette.gradients.layout import trained_parameters
from noisette.gradients.losses import Loss
from noisette.gradients.per_example import Gradients, Inexact, SlowPath

__all__ = [
    "SHORTEN",
    "Gradients",
    "Inexact",
    "Loss",
    "SlowPath",
    "batch_statistics",
    "own_randomness",
    "shortening",
    "trained_parameters",
]
