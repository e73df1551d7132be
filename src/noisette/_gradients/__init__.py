"""Per-example gradients of any torch module, in chunks, and the check that no example touches another's."""

from noisette._gradients.engine import Inexact, PerExampleGradients, SlowPath
from noisette._gradients.flat_params import trained_parameters
from noisette._gradients.hooks import UNHOOK, Own, hooked, refuse_hooks
from noisette._gradients.per_example_loss import Loss
from noisette._gradients.probe import MAX_NORM_REASON, batch_statistics, isolated_rng, max_norm_embeddings

__all__ = [
    "MAX_NORM_REASON",
    "UNHOOK",
    "Inexact",
    "Loss",
    "Own",
    "PerExampleGradients",
    "SlowPath",
    "batch_statistics",
    "hooked",
    "isolated_rng",
    "max_norm_embeddings",
    "refuse_hooks",
    "trained_parameters",
]
