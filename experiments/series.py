"""The series of the training figures: what each of them trains, at which noise, with which learning rate.

Learning rates are constant, as the paper's, and the same at every noise level. `learning_rates` compares three for the
encoded series and three for DPSGD, at full length on held-out examples. The weak rate is that with which DPSGD starts
as slowly as the paper's, at 77% after 468 iterations and 82% after 702. CIFAR-10 at full length has its own, which
`rates` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import rates
from kept import Point
from training import RUNS, Tell, ensure, key

from noisette.app.recipes import Recipe
from noisette.app.reports._mpl_style import GREY, PALETTE
from noisette.errors import InvalidInput

Array = npt.NDArray[np.float64]

ENCODED = "Ranked(profiles=PaperGaussian(n=1000))"
CLIPPED = "L2(radius=1.0)"
STUDENT = "StudentT(df=9, scale={})"
GAUSSIAN = "Gaussian(scale={})"
WITH_KS = {"mnist": 40.0, "cifar10": 160.0}
TUNED = {"mnist": 0.25, "cifar10": 0.5}
WEAK = {"mnist": 0.06}
"""Learning rates. The distance settles near 0.005, so that 40 with it acts like 0.2."""
FULL = "cifar10_full"
FIRST = {CLIPPED: 0.25, ENCODED: 80.0}
"""The rates that are tried first for CIFAR-10 at full length: half of those that are best at a tenth of it."""
REDUCED: dict[str, dict[str, Any]] = {
    "mnist": {},
    "cifar10": {"steps": 1950, "model_options": {"width": 8, "activation": "tanh"}},
    FULL: {"steps": 19531, "model_options": {"width": 8, "activation": "tanh"}},
}
"""What differs from the recipe of the paper's own settings: CIFAR-10 has 34,930 parameters, 10 epochs or all 100."""


@dataclass(frozen=True)
class Series:
    """A line of a figure. `paper` is its name in the paper's files; `headline` the scale that the text speaks of.

    Without a learning rate it takes the mean step of the denoised series: rate times mean distance of its first run.
    """

    label: str
    colour: str
    encoder: str
    noise: str
    denoiser: str
    lr: dict[str, float] | None
    headline: float
    paper: str | None = None

    def recipe(self, scale: float, data: str = "mnist") -> Recipe:
        """What is trained on `data` at one noise scale."""
        rate = self.rate(data)
        if rate is None:
            raise InvalidInput(
                f"{self.label} has no learning rate for {data} yet.", hint="choose it: python experiments/long.py"
            )
        return self._recipe(scale, data, rate)

    def trial(self) -> Recipe:
        """What is trained at full length to choose a learning rate, here with the first of them."""
        return self._recipe(self.headline, FULL, FIRST[self.encoder]).changed(steps=rates.STEPS)

    def _recipe(self, scale: float, data: str, rate: float) -> Recipe:
        changes = {"encoder": self.encoder, "noise": self.noise.format(scale), "denoiser": self.denoiser}
        return Recipe.load(f"{data.partition('_')[0]}-paper").changed(**changes, lr=rate, **REDUCED[data])

    def rate(self, data: str = "mnist") -> float | None:
        """Its learning rate, None where what it hangs on is not kept."""
        if data == FULL:
            return rates.at_full_length(self.trial())
        if self.lr is not None:
            return self.lr.get(data)
        first = [run for run in SERIES["encoded_student_t"].kept(self.headline, data) if run["seed"] == 0]
        return round(first[0]["lr"] * first[0]["mean_distance"], 4) if first else None

    def kept(self, scale: float, data: str = "mnist") -> list[Point]:
        """The runs of all seeds that are kept, with its own learning rate."""
        rate = self.rate(data)
        return [run for run in self.at_any_rate(scale, data) if run["lr"] == rate]

    def at_any_rate(self, scale: float, data: str = "mnist") -> list[Point]:
        """Those with other learning rates too, once it has one."""
        if self.rate(data) is None:
            return []
        settings = key(self.recipe(scale, data), 0)
        del settings["seed"], settings["lr"]
        return RUNS.all(**settings)

    def known(self, data: str = "mnist") -> bool:
        """Whether its headline run is kept, and that which its learning rate hangs on."""
        return bool(self.kept(self.headline, data))

    def curve(self, data: str = "mnist") -> tuple[Array, Array]:
        """Steps (k,) and accuracies (k,) in percent at the headline scale, the mean over seeds."""
        curves = np.array([run["curve"] for run in self.kept(self.headline, data)])
        return curves[0, :, 0], curves[:, :, 1].mean(axis=0)

    def levels(self, data: str = "mnist") -> list[float]:
        """The scales of which some run is kept, ascending."""
        planned = {scale for name, scale, _ in PLAN[data] if SERIES[name] is self}
        return sorted(scale for scale in planned if self.kept(scale, data))


def present(names: Sequence[str], data: str = "mnist") -> list[str]:
    """Those of `names` whose headline run is kept: figures show what there is."""
    return [name for name in names if SERIES[name].known(data)]


def last(runs: list[Point]) -> float:
    """Accuracy at the last step in percent, the mean over seeds."""
    return float(np.mean([run["accuracy"] for run in runs]))


def spread(runs: list[Point]) -> str:
    """The same as text, with the range over seeds where there are several."""
    found = [run["accuracy"] for run in runs]
    span = f" ({min(found):.2f} to {max(found):.2f}, {len(found)} seeds)" if len(found) > 1 else ""
    return f"{last(runs):.2f}{span}"


def seeds(names: Sequence[str]) -> str:
    """How many runs the headline points of some series are made of, in words."""
    counts = {len(SERIES[name].kept(SERIES[name].headline)) for name in present(names)}
    least, most = min(counts), max(counts)
    return (
        f"means of {least} to {most} runs" if least < most else "one run each" if most == 1 else f"means of {most} runs"
    )


SERIES = {
    "encoded_student_t": Series(
        "encoded, Student-t, KS", PALETTE[0], ENCODED, STUDENT, "KS()", WITH_KS, 1.0, "encoded_student_t"
    ),
    "encoded_gaussian": Series(
        "encoded, Gaussian, KS", PALETTE[1], ENCODED, GAUSSIAN, "KS()", WITH_KS, 1.1, "encoded_gaussian"
    ),
    "dpsgd": Series("DPSGD, tuned rate", PALETTE[2], CLIPPED, GAUSSIAN, "Identity()", TUNED, 1.1, "dpsgd"),
    "dpsgd_weak": Series("DPSGD, weak rate", GREY, CLIPPED, GAUSSIAN, "Identity()", WEAK, 1.1),
    "student_t_matched": Series("without KS, same mean step", PALETTE[3], ENCODED, STUDENT, "Identity()", None, 1.0),
    "student_t_weak": Series("without KS, the weak rate", GREY, ENCODED, STUDENT, "Identity()", WEAK, 1.0),
}

PLAN: dict[str, list[tuple[str, float, int]]] = {
    "mnist": [
        ("encoded_student_t", 1.0, 0), ("encoded_gaussian", 1.1, 0), ("dpsgd", 1.1, 0),
        ("student_t_matched", 1.0, 0), ("dpsgd_weak", 1.1, 0),
        ("encoded_student_t", 0.741, 0), ("encoded_gaussian", 1.5, 0), ("encoded_student_t", 1.43, 0),
        ("encoded_gaussian", 0.7, 0), ("dpsgd", 0.7, 0), ("dpsgd", 1.5, 0), ("student_t_weak", 1.0, 0),
        ("encoded_student_t", 1.0, 1), ("encoded_gaussian", 1.1, 1), ("dpsgd", 1.1, 1),
        ("encoded_student_t", 1.0, 2), ("encoded_gaussian", 1.1, 2), ("dpsgd", 1.1, 2),
    ],
    "cifar10": [
        ("encoded_student_t", 1.0, 0), ("dpsgd", 1.1, 0), ("encoded_gaussian", 1.1, 0),
        ("dpsgd", 0.7, 0), ("encoded_student_t", 0.741, 0), ("encoded_gaussian", 0.7, 0),
        ("dpsgd", 1.5, 0), ("encoded_student_t", 1.43, 0), ("encoded_gaussian", 1.5, 0),
    ],
    FULL: [
        ("encoded_student_t", 1.0, 0), ("dpsgd", 1.1, 0), ("encoded_gaussian", 1.1, 0),
        ("dpsgd", 0.7, 0), ("encoded_student_t", 0.741, 0), ("encoded_gaussian", 0.7, 0),
        ("dpsgd", 1.5, 0), ("encoded_student_t", 1.43, 0), ("encoded_gaussian", 1.5, 0),
        ("encoded_student_t", 1.0, 1), ("dpsgd", 1.1, 1), ("encoded_gaussian", 1.1, 1),
        ("encoded_student_t", 1.0, 2), ("dpsgd", 1.1, 2), ("encoded_gaussian", 1.1, 2),
    ],
}  # fmt: skip
"""Which runs the figures want, by series, scale and seed, the most telling first."""


def fill(names: tuple[str, ...], tell: Tell, data: str = "mnist") -> None:
    """Run what is missing of these series, in the order of the plan."""
    for name, scale, seed in PLAN[data]:
        if name in names:
            ensure(SERIES[name].recipe(scale, data), seed, tell)
