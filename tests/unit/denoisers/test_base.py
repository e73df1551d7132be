"""The base class, and that one new file is one new denoiser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import noisette
from noisette._spec import registered
from noisette.denoisers import Denoiser

ROOT = Path(__file__).parents[3]

FILE = '''
"""Keep the signs only."""
from dataclasses import dataclass
import torch
from noisette.denoisers.base import Denoiser

@dataclass(frozen=True)
class Signs(Denoiser):
    """The sign of every coordinate, times a level."""
    level: float = 1.0

    @classmethod
    def examples(cls):
        return (cls(), cls(level=0.5))

    def _update(self, released, state):
        return self.level * released.values.sign(), dict(state)
'''

SCRIPT = """
import sys, warnings
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]  # not the editable install's
warnings.simplefilter("error")
import noisette
from noisette import parse
from noisette.denoisers import Denoiser
from noisette._spec import registered
from tests.conformance.denoiser_checks import DENOISER_CHECKS
assert noisette.__file__.startswith(FOLDER), noisette.__file__
chain = parse("Chain((Signs(level=1/2), Kalman()))", Denoiser)
for denoiser in registered(Denoiser)["Signs"].examples():
    for check in DENOISER_CHECKS:
        check(denoiser)
print(repr(chain))
"""


def test_one_file_is_one_denoiser(tmp_path: Path) -> None:
    """In a copy of the package with one more file, nothing else edited; in a process of its own."""
    shutil.copytree(Path(noisette.__file__).parent, tmp_path / "noisette", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "noisette" / "denoisers" / "signs.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-c", f"FOLDER = {str(tmp_path)!r}\n{SCRIPT}"],
        capture_output=True,
        text=True,
        env={
            "PYTHONPATH": f"{tmp_path}:{ROOT}",
            "PATH": "/usr/bin:/bin",
            "OMP_NUM_THREADS": "1",
            "NOISETTE_KERNEL": "off",
        },
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Chain(denoisers=(Signs(level=0.5), Kalman(gain=0.7)))\n"
    assert "Signs" not in registered(Denoiser)
