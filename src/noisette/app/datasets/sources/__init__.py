"""Data sets by name. A new file in this folder is found by itself; so is any subclass of `Source` elsewhere."""

import importlib
import pkgutil

from noisette.app.datasets.sources.base import Source, sources
from noisette.app.datasets.sources.published import Published

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = ["Published", "Source", "sources"]
