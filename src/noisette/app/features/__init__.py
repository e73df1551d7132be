"""Features that no private picture had a part in: scattering, and patches with filters from made-up pictures."""

from noisette.app.features._parallel import Progress
from noisette.app.features.base import FeatureMap, Features
from noisette.app.features.cache import fit_cached, transform_cached
from noisette.app.features.concat import Joined
from noisette.app.features.patches import Patches
from noisette.app.features.scattering import Scattering
from noisette.app.features.two_layer_patches import TwoLayers

__all__ = [
    "FeatureMap",
    "Features",
    "Joined",
    "Patches",
    "Progress",
    "Scattering",
    "TwoLayers",
    "fit_cached",
    "transform_cached",
]
