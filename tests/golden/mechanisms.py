"""About sixty mechanisms, each with every accountant that has an epsilon for it.

Epsilons of privacy-loss distributions have six to ten digits that are the same on every processor: the rest depends on
how it adds up vectors and takes logarithms. `computed` therefore works in a process that takes the oldest instructions
everywhere, which gives every x86-64 the same numbers to the last bit.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import names

__all__ = ["computed", "tolerance"]

DELTA = 1e-5
_ROOT = Path(__file__).parents[2]


def cases() -> dict[str, tuple[Any, ...]]:
    """What is spent in each case."""
    few, noises, encoders = names.ENCODERS["ranked-half-normal-2"], names.NOISES, names.ENCODERS
    l2, gaussian, laplace, student = encoders["l2"], noises["gaussian"], noises["laplace"], noises["student-9"]
    found: dict[str, Any] = {}
    for label, noise in noises.items():
        found[f"noise {label}"] = names.mechanism(few, noise, 0.01, 200)
    for label, encoder in encoders.items():
        found[f"encoder {label}, gaussian"] = names.mechanism(encoder, gaussian, 0.02, 50)
    for label in ("half-normal", "paper-levels", "tails", "blocks", "radius", "micro"):
        found[f"encoder ranked-{label}, laplace"] = names.mechanism(encoders[f"ranked-{label}"], laplace, 0.02, 50)
    for label in ("ranked-tails", "ranked-micro", "snap"):
        found[f"encoder {label}, student"] = names.mechanism(encoders[label], student, 0.02, 50)
    for rate, steps in ((1.0, 1), (1.0, 20), (0.5, 10), (1e-3, 300), (256 / 60000, 14062)):
        found[f"rate {rate:.4g}, {steps} steps, gaussian"] = names.mechanism(l2, gaussian, rate, steps)
    for rate, steps in ((1.0, 1), (0.5, 4), (1e-3, 1000)):
        found[f"rate {rate:.4g}, {steps} steps, laplace"] = names.mechanism(few, laplace, rate, steps)
    for label, noise, encoder in (("gaussian", gaussian, l2), ("student", student, few)):
        found[f"truncated, {label}"] = names.mechanism(encoder, noise, 0.01, 100, largest=200, population=10_000)
    found["truncated rarely, gaussian"] = names.mechanism(l2, gaussian, 0.01, 100, largest=400, population=10_000)
    found["units, gaussian"] = names.mechanism(l2, gaussian, 0.01, 100, unit=True)
    found["units, truncated, laplace"] = names.mechanism(
        few, laplace, 0.01, 100, largest=200, population=10_000, unit=True
    )
    one, other = names.mechanism(l2, gaussian, 0.01, 100), names.mechanism(few, laplace, 0.02, 30)
    quiet = names.mechanism(l2, gaussian.replace(scale=4.0), 0.01, 100)
    found["one after the other"] = (one, other)
    found["three, and one of them truncated"] = (one, found["truncated rarely, gaussian"], quiet)
    for label, law in names.TRIALS.items():
        found[f"search, {label}"] = names.search([quiet], law(5.0))
    found["search of two"] = names.search([one, quiet], names.TRIALS["logarithmic"](3.0))
    score = names.mechanism(few, laplace.replace(scale=20.0), 1.0, 1)
    found["search by a noisy score"] = names.search([quiet], names.TRIALS["geometric"](3.0), score)
    found["search and training"] = (found["search, logarithmic"], one)
    return {label: spent if isinstance(spent, tuple) else (spent,) for label, spent in found.items()}


_CURVES = ("noise gaussian", "noise laplace", "encoder snap, student", "truncated, gaussian", "search, geometric")


def _all() -> dict[str, Any]:
    spent = cases()
    epsilons = {
        label: {of: names.epsilon(one, DELTA, name) for of, name in names.ACCOUNTANTS.items()}
        for label, one in spent.items()
    }
    small = {label: names.epsilon(spent[label], 1e-9, "pld") for label in _CURVES}
    return {
        "epsilons": epsilons,
        "epsilons at delta 1e-9": small,
        "deltas": {label: names.deltas(spent[label]) for label in _CURVES},
    }


def _plain() -> bool:
    """Whether this system can be told to take the oldest instructions everywhere."""
    return platform.machine() in ("x86_64", "AMD64") and platform.libc_ver()[0] == "glibc"


def tolerance() -> tuple[float, float]:
    """How far an epsilon or a delta may be off: relatively, and absolutely."""
    return (1e-12, 0.0) if _plain() else (1e-5, 1e-12)


def computed() -> dict[str, Any]:
    """All of it, from a process of its own."""
    vectors = np.show_config(mode="dicts")["SIMD Extensions"]
    features = ("AVX", "AVX2", "AVX512F", "AVX512VL", "FMA", "FMA4")
    plain = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(vectors.get("found", [])),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{one},-{one}_Usable" for one in features),
        "OPENBLAS_CORETYPE": "Nehalem",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.mechanisms"],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | (plain if _plain() else {}),
        cwd=_ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_all()))
