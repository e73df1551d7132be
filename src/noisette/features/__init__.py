"""Features that no private picture had a part in: scattering, and patches with filters from made-up pictures."""

from noisette.features.base import Features, Fixed
from noisette.features.cache import cached, learnt
from noisette.features.joined import Joined
from noisette.features.patches import Patches
from noisette.features.scattering import Scattering
from noisette.features.side_by_side import Progress
from noisette.features.two_layers import TwoLayers

__all__ = ["Features", "Fixed", "Joined", "Patches", "Progress", "Scattering", "TwoLayers", "cached", "learnt"]
