"""Training: Poisson batches, private steps, checkpoints."""

from noisette.training.check import Finding, Report, check
from noisette.training.entrance import make_private
from noisette.training.fix import StatisticsDropped, fix
from noisette.training.plan import plan
from noisette.training.private_run import PrivateRun
from noisette.training.processes import Processes, join
from noisette.training.sampler import PoissonSampler
from noisette.training.trainer import Progress, Trainer, accuracy, answers

__all__ = [
    "Finding",
    "PoissonSampler",
    "PrivateRun",
    "Processes",
    "Progress",
    "Report",
    "StatisticsDropped",
    "Trainer",
    "accuracy",
    "answers",
    "check",
    "fix",
    "join",
    "make_private",
    "plan",
]
