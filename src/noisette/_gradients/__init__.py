"""Per-example gradients of any torch module, in chunks, and the check that no example touches another's."""

from noisette._gradients.engine import Gradients, Inexact, SlowPath
from noisette._gradients.flat_params import trained_parameters
from noisette._gradients.hooks import UNHOOK, Own, hooked, refuse_hooks
from noisette._gradients.per_example_loss import Loss
from noisette._gradients.probe import SHORTEN, batch_statistics, own_randomness, shortening

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
