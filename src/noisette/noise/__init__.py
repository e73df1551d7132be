"""Noise laws, one file each. A new file in this folder is found by itself; so is any subclass of `Noise` elsewhere."""

import importlib
import pkgutil

from noisette.noise.base import Noise
from noisette.noise.cauchy import Cauchy
from noisette.noise.gaussian import Gaussian
from noisette.noise.generalized_gaussian import GeneralizedGaussian
from noisette.noise.laplace import Laplace
from noisette.noise.logistic import Logistic
from noisette.noise.scipy_law import ScipyNoise
from noisette.noise.sech import Sech
from noisette.noise.student_t import StudentT
from noisette.noise.variance_gamma import VarianceGamma

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = [
    "Cauchy",
    "Gaussian",
    "GeneralizedGaussian",
    "Laplace",
    "Logistic",
    "Noise",
    "ScipyNoise",
    "Sech",
    "StudentT",
    "VarianceGamma",
]
