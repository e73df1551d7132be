"""Encoders, one file each. A new file in this folder is found by itself; so is any subclass of `Encoder` elsewhere."""

import importlib
import pkgutil

from noisette.encode.base import Encoder, Image
from noisette.encode.l2 import L2
from noisette.encode.ranked import Ranked
from noisette.encode.snap import Snap

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = ["L2", "Encoder", "Image", "Ranked", "Snap"]
