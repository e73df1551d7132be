from noisette.account import Ledger, Tradeoff, calibrate, compare, guarantee, read_ledger, tradeoff
from noisette.denoise import (
    KS,
    AndersonDarling,
    Chain,
    CramerVonMises,
    Denoiser,
    Identity,
    JamesStein,
    Kalman,
    LowPass,
    Score,
    Wasserstein,
)
from noisette.door import release
from noisette.encode import L2, Encoder, Ranked, Snap
from noisette.generator import Generator
from noisette.mechanism import Guarantee, Mechanism
from noisette.noise import (
    Cauchy,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Logistic,
    Noise,
    ScipyNoise,
    Sech,
    StudentT,
    VarianceGamma,
)
from noisette.private import Private, Released
from noisette.profiles import Blocks, Empirical, HalfNormal, PaperGaussian, Power, Profiles, Quantiles, Tails
from noisette.recipes import load
from noisette.sampling import Poisson
from noisette.selection import LogUniform, tune
from noisette.spec import parse
from noisette.training import PrivateRun, Trainer, check, fix, make_private, plan

__version__: str

__all__ = [
    "KS",
    "L2",
    "AndersonDarling",
    "Blocks",
    "Cauchy",
    "Chain",
    "CramerVonMises",
    "Denoiser",
    "Empirical",
    "Encoder",
    "Gaussian",
    "GeneralizedGaussian",
    "Generator",
    "Guarantee",
    "HalfNormal",
    "Identity",
    "JamesStein",
    "Kalman",
    "Laplace",
    "Ledger",
    "LogUniform",
    "Logistic",
    "LowPass",
    "Mechanism",
    "Noise",
    "PaperGaussian",
    "Poisson",
    "Power",
    "Private",
    "PrivateRun",
    "Profiles",
    "Quantiles",
    "Ranked",
    "Released",
    "ScipyNoise",
    "Score",
    "Sech",
    "Snap",
    "StudentT",
    "Tails",
    "Tradeoff",
    "Trainer",
    "VarianceGamma",
    "Wasserstein",
    "calibrate",
    "check",
    "compare",
    "fix",
    "guarantee",
    "load",
    "make_private",
    "parse",
    "plan",
    "read_ledger",
    "release",
    "tradeoff",
    "tune",
]
