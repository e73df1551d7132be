"""Training: Poisson batches, private steps, checkpoints."""

from noisette.training._batching import PoissonSampler
from noisette.training._distributed import Processes, process_group
from noisette.training._fix import StatisticsDropped, fix
from noisette.training.make_private import make_private
from noisette.training.plan import plan
from noisette.training.private_run import PrivateRun
from noisette.training.trainer import Progress, Trainer, accuracy, answers
from noisette.training.validate import Finding, Report, check

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
    "make_private",
    "plan",
    "process_group",
]
