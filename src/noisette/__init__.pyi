from noisette._private import Private, Released
from noisette._release import release
from noisette._spec import parse
from noisette.accounting import Ledger, Tradeoff, calibrate, compare, guarantee, read_ledger, tradeoff
from noisette.denoisers import Denoiser
from noisette.encoders import Encoder
from noisette.mechanism import Guarantee, Mechanism
from noisette.noise import Noise
from noisette.random import Generator
from noisette.sampling import Poisson
from noisette.training import PrivateRun, Trainer, check, fix, make_private, plan

__version__: str

__all__ = [
    "Denoiser",
    "Encoder",
    "Generator",
    "Guarantee",
    "Ledger",
    "Mechanism",
    "Noise",
    "Poisson",
    "Private",
    "PrivateRun",
    "Released",
    "Tradeoff",
    "Trainer",
    "calibrate",
    "check",
    "compare",
    "fix",
    "guarantee",
    "make_private",
    "parse",
    "plan",
    "read_ledger",
    "release",
    "tradeoff",
]
