"""Features that no private picture had a part in: scattering, and patches with filters from made-up pictures."""

from noisette.app.features._parallel import Progress
from noisette.app.features.base import Features, Fixed
from noisette.app.features.cache import cached, learnt
from noisette.app.features.concat import Joined
from noisette.app.features.patches import Patches
from noisette.app.features.scattering import Scattering
from noisette.app.features.two_layer_patches import TwoLayers

__all__ = ["Features", "Fixed", "Joined", "Patches", "Progress", "Scattering", "TwoLayers", "cached", "learnt"]
