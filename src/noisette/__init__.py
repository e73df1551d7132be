"""noisette: train PyTorch models with differential privacy, with any noise and a certified epsilon."""

from noisette.account import Ledger, Tradeoff, calibrate, compare, guarantee, tradeoff
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
from noisette.release import release
from noisette.spec import parse

__version__ = "0.1.0"

__all__ = [
    "L2",
    "Blocks",
    "Cauchy",
    "Empirical",
    "Encoder",
    "Gaussian",
    "GeneralizedGaussian",
    "Generator",
    "Guarantee",
    "HalfNormal",
    "Laplace",
    "Ledger",
    "Logistic",
    "Mechanism",
    "Noise",
    "PaperGaussian",
    "Power",
    "Private",
    "Profiles",
    "Quantiles",
    "Ranked",
    "Released",
    "ScipyNoise",
    "Sech",
    "Snap",
    "StudentT",
    "Tails",
    "Tradeoff",
    "VarianceGamma",
    "calibrate",
    "compare",
    "guarantee",
    "parse",
    "release",
    "tradeoff",
]
