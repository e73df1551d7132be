"""Which learning rate is best at full length, on training examples that are held out: one run for each rate.

MNIST: encoded Student-t noise with KS has 96.3%, 95.9% and 93.1% at 20, 40 and 80, DPSGD 96.6%, 96.5% and 94.7% at
0.125, 0.25 and 0.5. CIFAR-10: 43.7%, 46.5% and 35.9% at 80, 160 and 320, 43.3%, 49.0% and 46.4% at 0.25, 0.5 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from kept import RESULTS, Claim, Kept, Point
from markdown import picture, table
from series import SERIES
from training import Tell, ensure, key

from noisette.app.recipes import Recipe
from noisette.app.reports._mpl_style import panels, save

KEPT = Kept("learning_rates")
TITLES = {"mnist": "MNIST, 14,062 iterations", "cifar10": "CIFAR-10, 1,950 iterations"}
NAMES = ("encoded_student_t", "dpsgd")
"""The series that are compared. Encoded Gaussian noise takes the rate of encoded Student-t noise."""
FACTORS = (1.0, 2.0, 0.5)
"""What is tried, over the rate of the figures."""


def fill(tell: Tell) -> None:
    """Train what is missing: on five sixths of the training examples, at the headline scale."""
    for recipe in plan():
        ensure(recipe, 0, tell, kept=KEPT, held_out=True)


def plan() -> Iterator[Recipe]:
    """What is trained, the most telling first."""
    for factor in FACTORS:
        for data in TITLES:
            for name in NAMES:
                yield _recipe(data, name, factor)


def _recipe(data: str, name: str, factor: float = 1.0) -> Recipe:
    recipe = SERIES[name].recipe(SERIES[name].headline, data)
    return recipe.changed(lr=recipe.lr * factor)


def found(data: str, name: str) -> list[Point]:
    """The runs of a series that are kept, by learning rate."""
    return [point for factor in sorted(FACTORS) for point in KEPT.all(**key(_recipe(data, name, factor), 0))]


def best(data: str, name: str) -> float:
    """The learning rate with the highest held-out accuracy at the last step."""
    return float(max(found(data, name), key=lambda point: point["accuracy"])["lr"])


def draw() -> None:
    """Learning rate over that of the figures, against held-out accuracy at the last step."""
    figure, axes = panels(2, width=5.0, height=4.4)
    for data, axis in zip(TITLES, axes, strict=True):
        for name in NAMES:
            one, points, used = SERIES[name], found(data, name), _recipe(data, name).lr
            label = one.label if data == "mnist" else None
            axis.plot(
                [point["lr"] / used for point in points],
                [point["accuracy"] for point in points],
                color=one.colour,
                marker="o",
                label=label,
            )
        axis.set(title=TITLES[data], xlabel="learning rate, over that of the figures", xscale="log")
        axis.set(ylabel="held-out accuracy at the last step (%)", xlim=(0.4, 2.5))
        axis.set_xticks([0.5, 1.0, 2.0], ["1/2", "1", "2"])
        axis.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    save(figure, RESULTS / "learning_rates.png")


def claims() -> list[Claim]:
    """The paper claims nothing of learning rates."""
    return []


def section() -> str:
    """Every run, and which rate the figures take."""
    rows = [
        [TITLES[data], SERIES[name].label, f"{point['lr']:g}", f"{point['accuracy']:.2f}", _remark(data, name, point)]
        for data in TITLES
        for name in NAMES
        for point in found(data, name)
    ]
    return f"""
## Learning rates

Trained on five sixths of the training examples and judged on the others, in percent at the last step, at the scales
of the headline (Gaussian 1.1, Student-t 1.0): one run for each rate, with constant rates, at the length of the figures.
The encoded Gaussian series takes the rate of the encoded Student-t series. {_others()}

{table(["data", "series", "learning rate", "held-out accuracy", ""], rows)}
{picture("learning_rates", "Held-out accuracy by learning rate")}

Again: `python experiments/figures.py learning_rates`.
"""


def _others() -> str:
    """In words, where the figures take another rate than the best here."""
    missed = []
    for data in TITLES:
        for name in NAMES:
            right = {point["lr"]: point["accuracy"] for point in found(data, name)}
            gap = right[best(data, name)] - right[_recipe(data, name).lr]
            if gap > 0:
                where = f"{SERIES[name].label} on {TITLES[data].partition(',')[0]}"
                missed.append(f"{where}, where {best(data, name):g} is {gap:.2f} points better")
    if not missed:
        return "The figures take the best of them everywhere."
    return f"The figures take the best of them but for {'; '.join(missed)}. Spreads over seeds are below."


def _remark(data: str, name: str, point: Point) -> str:
    used, highest = point["lr"] == _recipe(data, name).lr, point["lr"] == best(data, name)
    return ", ".join(["that of the figures"] * used + ["highest"] * highest)
