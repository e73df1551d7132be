"""Per-example gradients of any torch module, in chunks, and the check that no example touches another's."""

from noisette.gradients.hooks import UNHOOK, Own, hooked, refuse_hooks
from noisette.gradients.isolation import SHORTEN, batch_statistics, own_randomness, shortening
from noisette.gradients.layout import trained_parameters
from noisette.gradients.losses import Loss
from noisette.gradients.per_example import Gradients, Inexact, SlowPath

__all__ = [
    "SHORTEN",
    "UNHOOK",
    "Gradients",
    "Inexact",
    "Loss",
    "Own",
    "SlowPath",
    "batch_statistics",
    "hooked",
    "own_randomness",
    "refuse_hooks",
    "shortening",
    "trained_parameters",
]
