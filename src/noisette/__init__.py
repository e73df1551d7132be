"""noisette: train PyTorch models with differential privacy, with any noise and a certified epsilon.

Names are imported when they are asked for (PEP 562), so that the command line answers before torch is there.
`__init__.pyi` says the same to type checkers and editors.
"""

import importlib
import importlib.util
import os
from typing import Any

__version__ = "0.1.0"

# Threads that wait for each other spin, unless OpenMP is told to let them sleep before torch is loaded. Beside other
# programs they spin away the very time that the thread they wait for would need. To sleep at once costs a fifth of a
# quiet machine's speed; the next work mostly comes within microseconds, which GNU's library can be told to wait for.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_PARTS = {
    "_private": "Private Released",
    "_release": "release",
    "_spec": "parse",
    "accounting": "calibrate compare guarantee Ledger read_ledger Tradeoff tradeoff",
    "denoisers": "Denoiser",
    "encoders": "Encoder",
    "mechanism": "Guarantee Mechanism",
    "noise": "Noise",
    "random": "Generator",
    "sampling": "Poisson",
    "training": "check fix make_private plan PrivateRun Trainer",
}
_HOMES = {name: f"noisette.{part}" for part, names in _PARTS.items() for name in names.split()}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the stub has it for those who read and do not run


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # asked for once
        return value
    if not name.startswith("_") and importlib.util.find_spec(f"noisette.{name}") is not None:
        return importlib.import_module(f"noisette.{name}")
    raise AttributeError(f"module 'noisette' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
