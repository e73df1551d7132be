"""The library without the application: it never imports `noisette.app`, nor what only the application needs."""

from __future__ import annotations

import subprocess
import sys

_APPLICATION = ("typer", "rich", "jinja2", "yaml", "tomli_w", "safetensors")

_SCRIPT = f"""
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {_APPLICATION!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())

import torch
from torch import nn
import noisette
from noisette import Mechanism, make_private
from noisette.encoders import L2
from noisette.noise import Gaussian

for package in "encoders noise denoisers accounting sampling training _gradients _native audit".split():
    found = importlib.import_module("noisette." + package)
    for module in pkgutil.walk_packages(found.__path__, found.__name__ + "."):
        importlib.import_module(module.name)
model = nn.Linear(3, 2)
mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=2)
data = torch.randn(20, 3), torch.zeros(20, dtype=torch.long)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in make_private(model, nn.CrossEntropyLoss(), data, mechanism):
    optimizer.step()
print([name for name in sys.modules if name.startswith("noisette.app") or name in {_APPLICATION!r}])
"""


def test_it_runs_where_the_application_cannot() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
