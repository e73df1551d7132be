"""Encoders, one file each. A new file in this folder is found by itself; so is any subclass of `Encoder` elsewhere."""

import importlib
import pkgutil

from noisette.encoders.base import Encoder, Image
from noisette.encoders.l2 import L2
from noisette.encoders.ranked import Ranked
from noisette.encoders.snap import Snap

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = ["L2", "Encoder", "Image", "Ranked", "Snap"]
