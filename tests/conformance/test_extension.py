"""A new noise, encoder, accountant or data set is one file, and needs no edit elsewhere.

They live in a process of their own, so that the other tests' registries stay as they are.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from noisette import Encoder, Noise
from noisette._spec import registered

ROOT = Path(__file__).parents[2]

NOISE = '''
"""The law of a difference of two exponentials, with nothing but what a leaf must say."""
import math
from dataclasses import dataclass
import numpy as np
from noisette.noise.base import Noise

@dataclass(frozen=True)
class MyNoise(Noise):
    """Density exp(-|x|) / 2."""
    scale: float | None = None

    @classmethod
    def examples(cls):
        return (cls(1.0), cls(0.3))

    def _log_prob(self, x):
        return -np.abs(x) - math.log(2)

    def _standard_sf(self, x):
        return 0.5 * np.exp(-x)

    def _abs_quantile(self, u):
        return -np.log(u)
'''

ENCODER = '''
"""Clip every coordinate to the same value."""
from dataclasses import dataclass
import math
import numpy as np
import torch
from noisette.encoders.base import Encoder, Image
from noisette.encoders.profiles import ProfileSet

@dataclass(frozen=True)
class MyEncoder(Encoder):
    """Each coordinate within radius / sqrt(dim)."""
    dim: int | None = None
    radius: float = 1.0
    micro_batch: int = 1

    @classmethod
    def examples(cls):
        return (cls(dim=50), cls(dim=50, radius=0.5))

    @property
    def _level(self):
        return self.radius / math.sqrt(self.known_dim) * (1 - 2.0**-40)

    @property
    def _image_of_one(self):
        return Image(self.radius, (ProfileSet(np.array([[self._level]]), np.array([self.known_dim])),))

    def _encode(self, rows):
        return rows.clamp(-self._level, self._level)
'''

SCRIPT = """
import warnings
warnings.simplefilter("error")
import torch
import my_noise, my_encoder
from noisette import Encoder, Generator, Mechanism, Noise, parse, release
from noisette._spec import registered
from tests.conformance.encoder_checks import ENCODER_CHECKS
from tests.conformance.noise_checks import NOISE_CHECKS
from tests.conformance.statistics import sampling_faults

assert "MyNoise" in registered(Noise) and "MyEncoder" in registered(Encoder)
noise = parse("MyNoise(scale=1)", Noise)
encoder = parse("MyEncoder(dim=50)", Encoder)
for example in registered(Noise)["MyNoise"].examples():
    for check in NOISE_CHECKS:
        check(example)
    assert sampling_faults(example, example.sample((100_000,), Generator(1)).numpy()) == []
for example in registered(Encoder)["MyEncoder"].examples():
    for check in ENCODER_CHECKS:
        check(example)
mechanism = Mechanism(encoder, noise, rate=0.1, steps=3)
assert parse(repr(mechanism), Mechanism) == mechanism == Mechanism.from_toml(mechanism.to_toml())
assert not mechanism.noise.certified
assert release(mechanism, encoder.encode_sum(torch.randn(4, 50)), generator=Generator()).values.shape == (50,)
print("done")
"""


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    paths = ":".join((str(folder), str(ROOT)))
    environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )


def test_one_file_each(tmp_path: Path) -> None:
    (tmp_path / "my_noise.py").write_text(NOISE)
    (tmp_path / "my_encoder.py").write_text(ENCODER)
    done = run(tmp_path, SCRIPT)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "MyNoise" not in registered(Noise)
    assert "MyEncoder" not in registered(Encoder)


WRONG = """
import importlib
from noisette import Encoder, Generator, Noise
from tests.conformance.encoder_checks import ENCODER_CHECKS
from tests.conformance.noise_checks import NOISE_CHECKS

def refuses(checks, example):
    for check in checks:
        try:
            check(example)
        except AssertionError:
            return True
    return False

assert refuses(NOISE_CHECKS, importlib.import_module("wrong_magnitude").MyNoise(1.0))
assert refuses(NOISE_CHECKS, importlib.import_module("wrong_tail").MyTail(1.0))
assert refuses(ENCODER_CHECKS, importlib.import_module("wrong_encoder").MyEncoder(dim=50))
print("refused")
"""


def test_a_mistake_does_not_get_through(tmp_path: Path) -> None:
    """The same files with one mistake each fail the conformance checks, which nobody edited."""
    (tmp_path / "wrong_magnitude.py").write_text(NOISE.replace("-np.log(u)", "-0.999 * np.log(u)"))
    (tmp_path / "wrong_tail.py").write_text(
        NOISE.replace("np.exp(-x)", "np.exp(-1.001 * x)").replace("MyNoise", "MyTail")
    )
    (tmp_path / "wrong_encoder.py").write_text(ENCODER.replace("rows.clamp(-self", "rows.clamp(-1.001 * self"))
    done = run(tmp_path, WRONG)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


OWN = '''
import torch
from noisette.accounting import Accountant
from noisette.app.datasets import Dataset
from noisette.app.datasets.sources import Source

class Closed(Accountant):
    """One coordinate with Laplace noise: the pure epsilon, in closed form."""
    name = "closed"

    def supports(self, mechanism):
        return type(mechanism.noise).__name__ == "Laplace" and mechanism.encoder.dim == 1

    def epsilon(self, mechanisms, delta):
        return sum(one.steps * one.encoder.image.norm / one.noise.known_scale for one in mechanisms)

    def bound_method(self, mechanisms):
        return "closed form"

class Coins(Source):
    name = "coins"

    def load(self, rest, root):
        rows, labels = torch.linspace(-1, 1, 60)[:, None].repeat(1, 2), torch.arange(60) % 2
        return Dataset.from_arrays("coins", (rows, labels))
'''

OWN_SCRIPT = """
import io, json, sys, warnings
from contextlib import redirect_stdout, redirect_stderr
warnings.simplefilter("error")
from noisette.app.commands import main

def call(*arguments):
    sys.argv, out, err = ["noisette", "--load", "own.py", *arguments], io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        return ended.code, out.getvalue(), err.getvalue()

pure = ("--encoder", "Ranked(dim=1)", "--noise", "Laplace(scale=4)", "--rate", "1", "--steps", "2", "--json")
_, out, _ = call("account", *pure, "--accountant", "closed")
found = json.loads(out)
assert 0 <= found["epsilon"] - 0.5 < 1e-6, found  # what floats cost
assert (found["accountant"], found["basis"]) == ("closed", "closed form"), found

from noisette import Mechanism, calibrate, guarantee
from noisette.encoders import L2, Ranked
from noisette.noise import Gaussian, Laplace
from noisette.app.datasets import load, population
from noisette.errors import InvalidInput, Unaccountable
scale = calibrate(Mechanism(Ranked(dim=1), Laplace(), 1.0, 2), 1.0, 1e-5, accountant="closed").noise.known_scale
assert 2.0 <= scale <= 2.002, scale
try:
    guarantee(Mechanism(L2(dim=4), Gaussian(2.0), 1.0, 1), 1e-5, "closed")
except Unaccountable as error:
    assert error.hint == "choose one of pld, rdp, rdp-classic", error.hint
else:
    raise AssertionError
assert repr(load("coins")) == "Dataset(name='coins', train=60, test=0, shape=(2,), classes=2)"
assert population("coins") == "coins"

from noisette.accounting import Accountant
class Second(Accountant):
    name = "pld"
    def epsilon(self, mechanisms, delta): return 0.0
    def bound_method(self, mechanisms): return "none"
try:
    guarantee(Mechanism(L2(dim=4), Gaussian(2.0), 1.0, 1), 1e-5)
except InvalidInput as error:
    assert "'pld' names two classes" in str(error), error
else:
    raise AssertionError("an accountant took the place of another")
print("done")
"""


def test_an_accountant_and_a_data_set_of_our_own(tmp_path: Path) -> None:
    """The command line knows both by --load; none can take the name of another."""
    (tmp_path / "own.py").write_text(OWN)
    done = run(tmp_path, OWN_SCRIPT)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
