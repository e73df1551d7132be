"""Denoisers, one file each. A new file here is found by itself; so is any subclass of `Denoiser` elsewhere."""

import importlib
import pkgutil

from noisette.denoise.anderson_darling import AndersonDarling
from noisette.denoise.base import Denoiser, State
from noisette.denoise.chain import Chain
from noisette.denoise.cramer_von_mises import CramerVonMises
from noisette.denoise.identity import Identity
from noisette.denoise.james_stein import JamesStein
from noisette.denoise.kalman import Kalman
from noisette.denoise.ks import KS
from noisette.denoise.low_pass import LowPass
from noisette.denoise.score import Score
from noisette.denoise.wasserstein import Wasserstein

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
