"""Training: Poisson batches, private steps, checkpoints."""

from noisette.training.private_run import PrivateRun, make_private
from noisette.training.sampler import PoissonSampler
from noisette.training.trainer import Progress, Trainer, accuracy

__all__ = ["PoissonSampler", "PrivateRun", "Progress", "Trainer", "accuracy", "make_private"]
