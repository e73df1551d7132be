"""Denoisers, one file each. A new file here is found by itself; so is any subclass of `Denoiser` elsewhere."""

import importlib
import pkgutil

from noisette.denoisers.anderson_darling import AndersonDarling
from noisette.denoisers.base import Denoiser, State
from noisette.denoisers.chain import Chain
from noisette.denoisers.cramer_von_mises import CramerVonMises
from noisette.denoisers.identity import Identity
from noisette.denoisers.james_stein import JamesStein
from noisette.denoisers.kalman import Kalman
from noisette.denoisers.ks import KS
from noisette.denoisers.low_pass import LowPass
from noisette.denoisers.score import Score
from noisette.denoisers.wasserstein import Wasserstein

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = [
    "KS",
    "AndersonDarling",
    "Chain",
    "CramerVonMises",
    "Denoiser",
    "Identity",
    "JamesStein",
    "Kalman",
    "LowPass",
    "Score",
    "State",
    "Wasserstein",
]
