"""docs/results.md, out of what the figures' kept points say: the paper's claims one by one, then figure by figure."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from kept import RESULTS
from markdown import table

from noisette import _io

NAMES = (
    "gradient_distribution",
    "epsilon_axis",
    "learning_rates",
    "fixed_epochs",
    "best",
    "trajectory",
    "convergence",
    "full_length",
    "denoising",
    "l1_distance",
    "comparison",
    "few_numbers",
)
"""The figures, in the order of the page."""

PAGE = Path(__file__).parents[1] / "docs" / "results.md"

_HEAD = """# Results: the paper, reproduced

<!-- written by `make figures` from experiments/results/; edit experiments/, not this page -->

What the figures of [Improving Deep Learning with Differential Privacy using Gradient Encoding and Denoising][paper]
claim, and what noisette measures. Every number under *here* is read from a JSON file in `experiments/results/`, which
`python experiments/figures.py NAME` fills; `make figures` fills all, but for [CIFAR-10 at full
length](#cifar-10-at-the-papers-full-length), which `python experiments/long.py` goes on with for hours. A rerun
computes only what is missing. In the pictures the paper's own curves are the dotted ones.

[paper]: https://arxiv.org/abs/2007.11524

## Claim by claim

"""


def here() -> list[str]:
    """Names of the figures that this folder has a module for."""
    return [name for name in NAMES if (Path(__file__).parent / f"{name}.py").is_file()]


def drawn() -> list[str]:
    """Names of the figures with a picture: one without has no points yet, and no place on the page."""
    return [name for name in here() if (RESULTS / f"{name}.png").is_file()]


def text() -> str:
    """The page."""
    figures: list[ModuleType] = [importlib.import_module(name) for name in drawn()]
    claims = [claim for figure in figures for claim in figure.claims()]
    rows = [[claim.claim, claim.paper, claim.ours, claim.verdict] for claim in claims]
    return (
        _HEAD
        + table(["claim", "the paper", "here", "verdict"], rows)
        + "".join("\n" + section.strip() + "\n" for section in [*(one.section() for one in figures), *_field()])
    )


def _field() -> list[str]:
    """The table of the field, where recipes have been measured."""
    return [importlib.import_module("field").section()] if (RESULTS / "beyond").is_dir() else []


def write() -> Path:
    """Write the page, and say where it is."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    _io.write(PAGE, text().encode())
    return PAGE
