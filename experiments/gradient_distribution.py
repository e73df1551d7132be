"""Values of per-example gradients on MNIST and CIFAR-10, at the start and after 5 epochs, beside a Gaussian fit.

Result: no Gaussian. On MNIST 42% (start) and 60% (after 5 epochs) of all values are exact zeros, on CIFAR-10 61% and
49%; the kurtosis of one example's gradient is 169 and 139, and 17,666 and 61, where a Gaussian has 3. A half-normal
profile keeps 74% and 60% of a gradient of norm 1 on MNIST, 15% and 64% on CIFAR-10; an empirical one keeps 93% to 98%.
One run of each model, one seed, 256 examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from kept import RESULTS, Claim, Kept, Point
from markdown import picture, table
from scipy import special, stats
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients
from noisette.app import datasets, models
from noisette.app.datasets import Dataset
from noisette.app.reports._mpl_style import PALETTE, panels, save
from noisette.encoders import Ranked
from noisette.encoders.profiles import Empirical, HalfNormal

EPOCHS, BATCH, RATE, MOMENTUM, EXAMPLES = 5, 256, 0.05, 0.9, 256
MODELS: dict[str, tuple[str, dict[str, Any]]] = {"mnist": ("mnist_cnn", {}), "cifar10": ("cifar_cnn", {"width": 8})}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
EDGES = np.linspace(-6, 6, 121)  # of the histogram, in standard deviations
SHARES = np.geomspace(1e-4, 1.0, 41)  # of coordinates, from the largest one on, where profiles are kept
HEAD = "gradients | exact zeros | kurtosis | of one example | half-normal keeps | empirical keeps"
KEYS = ("zeros", "kurtosis", "kurtosis_of_one", "kept_half_normal", "kept_empirical")
KEPT = Kept("gradient_distribution")


def fill(tell: Callable[[str, int, int], None]) -> None:
    """Train each model without privacy, on public benchmarks, and look at its gradients before and after."""
    for name, (network, options) in MODELS.items():
        if all(KEPT.has(data=name, epochs=epochs) for epochs in (0, EPOCHS)):
            continue
        data = datasets.load(name)
        model = models.build(network, data.shape, 10, activation="relu", **options)
        for epochs in (0, EPOCHS):
            if epochs:
                _train(model, data, tell)
            if not KEPT.has(data=name, epochs=epochs):
                KEPT.add({"data": name, "epochs": epochs, **measure(_rows(model, data))})
    tell("done", 1, 1)


def _train(model: nn.Module, data: Dataset, tell: Callable[[str, int, int], None]) -> None:
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    order = torch.cat([torch.randperm(len(data.train_inputs), generator=generator) for _ in range(EPOCHS)]).split(BATCH)
    for step, batch in enumerate(order):
        tell(f"{NAMES[data.name]}, training without privacy", step, len(order))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.train_inputs[batch]), data.train_targets[batch]).backward()
        optimizer.step()


def _rows(model: nn.Module, data: Dataset) -> Tensor:
    """Gradients (256, d) of the first examples."""
    some = data.train_inputs[:EXAMPLES], data.train_targets[:EXAMPLES]
    return torch.cat([rows.detach().clone() for rows in PerExampleGradients(model, nn.CrossEntropyLoss()).chunks(some)])


def measure(rows: Tensor) -> dict[str, Any]:
    """What is kept of gradients (n, d): shares, moments, a histogram and profiles, never the values."""
    values, dim = rows.double().flatten().numpy(), rows.shape[1]
    counts, _ = np.histogram(values / (sigma := values.std()), EDGES)
    units = rows.double() / rows.double().norm(dim=1, keepdim=True)
    ranked = np.sort(units.abs().numpy(), axis=1)[:, ::-1].mean(axis=0) * math.sqrt(dim)
    first, seen = rows[: len(rows) // 2], units[len(rows) // 2 :]
    families = {"kept_half_normal": HalfNormal(), "kept_empirical": Empirical.from_gradients(first)}
    kept = {name: (Ranked(dim, psi).encode(seen) * seen).sum(dim=1).mean() for name, psi in families.items()}
    return {
        "dim": dim,
        "examples": len(rows),
        "zeros": round(float((values == 0).mean()), 5),
        "kurtosis": round(float(((values / sigma) ** 4).mean()), 2),
        "kurtosis_of_one": round(float((dim * (units**4).sum(dim=1)).median()), 2),
        "beyond_6": float(f"{(np.abs(values) > 6 * sigma).mean():.3g}"),
        **{name: round(float(value), 4) for name, value in kept.items()},
        "histogram": [float(f"{c:.4g}") for c in counts / values.size / np.diff(EDGES)],
        "profile": [float(f"{v:.4g}") for v in ranked[np.ceil(SHARES * dim).astype(int) - 1]],
    }


def draw() -> None:
    """For each data set the density of values and sorted magnitudes; what a Gaussian would have is dotted."""
    figure, axes = panels(4, width=3.3, height=4.2)
    for place, name in enumerate(MODELS):
        left, right, middle = *axes[2 * place : 2 * place + 2], (EDGES[1:] + EDGES[:-1]) / 2
        for epochs, colour in zip((0, EPOCHS), PALETTE, strict=False):
            point = KEPT.find(data=name, epochs=epochs)
            left.semilogy(middle, np.maximum(point["histogram"], 1e-9), color=colour, label=f"after {epochs} epochs")
            right.loglog(100 * SHARES, np.maximum(point["profile"], 1e-9), color=colour)
        left.plot(middle, stats.norm.pdf(middle), ":", color="black", label="Gaussian fit, as the paper's")
        right.plot(100 * SHARES, -special.ndtri(SHARES / 2), ":", color="black")
        left.set(title=NAMES[name], xlabel="value / standard deviation", ylabel="density", ylim=(1e-6, 30))
        right.set(xlabel="rank (% of coordinates)", ylabel="magnitude / root mean square", ylim=(1e-3, 99))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, RESULTS / "gradient_distribution.png")


def points() -> dict[str, Point]:
    """The four points, by what they are called in the table."""
    when = {0: "at the start", EPOCHS: f"after {EPOCHS} epochs"}
    return {f"{NAMES[n]}, {when[e]}": KEPT.find(data=n, epochs=e) for n in MODELS for e in when}


def claims() -> list[Claim]:
    """Whether a Gaussian fits."""
    zeros, _, tails, kept, _ = (sorted(point[key] for point in points().values()) for key in KEYS)
    fits = tails[-1] < 4 and zeros[-1] < 0.01
    return [
        Claim(
            "The values of gradients can be fitted to a Gaussian distribution",
            "a Gaussian, which has kurtosis 3 and no zeros",
            f"kurtosis {tails[0]:,.0f} to {tails[-1]:,.0f} of one example, {zeros[0]:.0%} to {zeros[-1]:.0%} zeros",
            f"{'holds' if fits else 'does not hold'}; half-normal profiles keep {kept[0]:.0%} to {kept[-1]:.0%}",
        )
    ]


def section() -> str:
    """The table, and the picture."""
    forms = (".1%", ",.0f", ",.0f", ".1%", ".1%")
    rows = [[name, *map(format, [point[key] for key in KEYS], forms)] for name, point in points().items()]
    return f"""
## The distribution of gradients

Values of the gradients of 256 examples, over all parameters. The models are trained without privacy, since this is a
look at public benchmarks: 5 epochs of SGD, one seed; MNIST with the paper's network of 26,010 parameters, CIFAR-10 with
a convolutional one of {KEPT.find(data="cifar10", epochs=0)["dim"]:,}, both with ReLU. *Keeps*: how much of a gradient
of norm 1 is left along its own direction after encoding (`Ranked`), where clipping to norm 1 keeps all of it. The
empirical profile is measured on half of the examples and used on the other half; in private training it must come from
public data. Kurtosis is that of all values together, and the median of that of one example.

{table(HEAD.split(" | "), rows)}
{picture("gradient_distribution", "Densities far from the Gaussian fit, and sorted magnitudes far from half-normal")}

In the second and fourth plot solid lines are the empirical profiles, the dotted one is the half-normal profile.
`python experiments/figures.py gradient_distribution` computes it from both data sets; it took 22 busy minutes.
"""
