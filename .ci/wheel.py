"""Tries the wheel in dist/ as a stranger would: in an empty environment, first bare, then with two extras.

    python .ci/wheel.py

Prints what it weighs. Run by `make wheel`, which builds it first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTERS = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "gmpy2", "pandas")
BARE = """
import sys
for name in ("matplotlib", "sklearn", "PIL"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(f"{name} is there, so nothing is tried without it")
from noisette import Mechanism, guarantee
from noisette.encoders import L2
from noisette.noise import Gaussian
from noisette._native import _extension
print(guarantee(Mechanism(L2(dim=26010), Gaussian(scale=1.1), rate=256 / 60000, steps=1000), delta=1e-5))
print("native kernel:", _native.variants())
"""


class Environment:
    """An empty environment in `folder`; what runs in it sees neither the sources nor the project's own packages."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder / "env", folder / "work"
        venv.create(self.folder, with_pip=True)
        self.work.mkdir()
        self.bin = self.folder / ("Scripts" if os.name == "nt" else "bin")

    def install(self, *what: str) -> None:
        command = [self.bin / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", *what]
        subprocess.run(command, check=True, cwd=self.work)

    def run(self, *command: str, fails: bool = False) -> str:
        """What a command prints, on either stream; it must succeed, or fail where it is to."""
        print("$", *(part if "\n" not in part else "..." for part in command), flush=True)
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [self.bin / command[0], *command[1:]], cwd=self.work, env=clean, text=True, capture_output=True, check=False
        )
        said = done.stdout + done.stderr
        print(said, flush=True)
        if (done.returncode != 0) != fails:
            sys.exit(f"it ended with status {done.returncode}")
        return said

    def weight(self) -> dict[str, float]:
        """Megabytes of every package, as installed."""
        listed = subprocess.run(
            [self.bin / "python", "-c", _WEIGH], capture_output=True, text=True, check=True, cwd=self.work
        )
        return dict(json.loads(listed.stdout))


_WEIGH = """
import json
from importlib.metadata import distributions
print(json.dumps({d.name: sum(p.stat().st_size for f in d.files or () if (p := d.locate_file(f)).is_file()) / 1e6
    for d in distributions()}))
"""


def main() -> None:
    """Bare first, then the extras, in the same environment."""
    wheel = max((ROOT / "dist").glob("noisette-*.whl"), key=lambda path: path.stat().st_mtime)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        place = Environment(Path(folder))
        place.install(str(wheel))
        sizes = place.weight()
        print(f"base install: {len(sizes)} packages, {sum(sizes.values()):.0f} MB; without torch", end=" ")
        print(f"{sum(sizes.values()) - sizes['torch']:.0f} MB; noisette itself {sizes['noisette']:.1f} MB")
        print(*(f"  {name} {size:.1f}" for name, size in sorted(sizes.items(), key=lambda x: -x[1])[:8]), sep="\n")
        place.run("python", "-c", BARE)
        said = place.run("noisette", "train", "digits", fails=True)
        if "noisette[sklearn]" not in said:
            sys.exit("the missing extra is not named")
        place.install(f"{wheel}[plot,sklearn]")
        more = place.weight()
        print(f"with plot and sklearn: {sum(more.values()) - sum(sizes.values()):.0f} MB more", flush=True)
        if not (out := place.run("noisette", "train", "digits")) or "epsilon" not in out:
            sys.exit("no guarantee was printed")
        place.install(*TESTERS)
        shutil.copytree(ROOT / "tests", place.work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "examples", place.work / "examples")
        shutil.copy(ROOT / "pyproject.toml", place.work)
        place.run("pytest", "-m", "not slow", "@tests/installed.txt")


if __name__ == "__main__":
    main()
