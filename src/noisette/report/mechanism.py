"""A picture of a mechanism: what it does to one gradient, its noise, and what its noise hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from noisette.errors import InvalidInput
from noisette.generator import Generator
from noisette.mechanism import Mechanism
from noisette.noise import Cauchy, Gaussian, Laplace, Noise, Sech, StudentT
from noisette.report.style import GREY, INK, PALETTE, panels

__all__ = ["draw_mechanism"]

_DRAWS = 1_000_000
_LAWS: tuple[Noise, ...] = (Gaussian(), StudentT(df=9), StudentT(df=3), Sech(), Laplace(), Cauchy())
_DASHES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), "-", ":")


def draw_mechanism(mechanism: Mechanism, gradient: torch.Tensor, *, generator: Generator) -> Figure:
    """Three plots: one example's gradient (d,) and its encoding, the noise, and several laws' hockey-stick curves.

    The encoder's image must be profiles in a single block of coordinates. `gradient` is drawn as it is, before any
    noise, so it must come from public data.

    >>> from noisette import Ranked
    >>> mechanism = Mechanism(Ranked(dim=100), StudentT(df=9, scale=1.0), rate=0.1, steps=1)
    >>> len(draw_mechanism(mechanism, torch.randn(100), generator=Generator()).axes)
    3
    """
    figure, axes = panels(3)
    _draw_encoding(axes[0], mechanism, gradient)
    _draw_noise(axes[1], mechanism.noise, generator)
    _draw_curves(axes[2], _LAWS, tau=1.0)
    return figure


def _draw_encoding(ax: Axes, mechanism: Mechanism, gradient: torch.Tensor) -> None:
    blocks = mechanism.encoder.image.profiles
    if len(blocks) != 1 or mechanism.encoder.micro_batch != 1:
        raise InvalidInput(
            f"{mechanism.encoder!r} has no single profile to draw.", hint="draw an encoder like Ranked(dim=...)"
        )
    encoded = mechanism.encoder.encode(gradient[None])[0].abs()
    by_size = gradient.abs().argsort(descending=True)
    raw = gradient.abs()[by_size].double().numpy()
    kept = encoded[by_size].numpy()
    profile = np.repeat(blocks[0].envelope().levels[0], blocks[0].counts)[::-1]
    ranks = np.arange(1, len(raw) + 1)
    ax.fill_between(ranks, kept, raw, color=PALETTE[1], alpha=0.18, linewidth=0, label="cut off")
    ax.plot(ranks, profile, color=INK, linewidth=1.4, linestyle="--", label="profile")
    ax.plot(ranks, raw, color=PALETTE[1], linewidth=1.6, label="gradient")
    ax.plot(ranks, kept, color=PALETTE[0], linewidth=2.0, label="its encoding")
    ax.set(xscale="log", yscale="log", xlim=(1, len(raw)), xlabel="rank, largest first", ylabel="magnitude")
    ax.set_ylim(bottom=float(profile.max()) * 1e-3)
    ax.set_title("One example's gradient, encoded", fontsize=11, color=INK, loc="left")
    _legend(ax, "lower left")
    cosine = float(raw @ kept / max(float(np.linalg.norm(raw) * np.linalg.norm(kept)), 1e-300))
    zeros = float(np.mean(raw == 0))
    ax.text(
        0.98,
        0.98,
        f"norm {np.linalg.norm(raw):.2f} → {np.linalg.norm(kept):.2f}\ncosine {cosine:.2f}\n{zeros:.0%} zeros",
        transform=ax.transAxes,
        ha="right",
        va="top",
        fontsize=8.5,
        color=INK,
    )


def _draw_noise(ax: Axes, noise: Noise, generator: Generator) -> None:
    reach = float(noise.magnitude(1e-4))
    edges = np.linspace(-reach, reach, 81)
    draws = noise.sample((_DRAWS,), generator).numpy()
    counts, _ = np.histogram(draws, bins=edges)
    width = edges[1] - edges[0]
    ax.stairs(counts / (_DRAWS * width), edges, fill=True, color=PALETTE[5], alpha=0.5, label=f"{_DRAWS:,} draws")
    x = np.linspace(-reach, reach, 801)
    density = np.exp(noise.log_prob(x))
    ax.plot(x, density, color=PALETTE[0], linewidth=1.8, label="density")
    if math.isfinite(noise.std):
        normal = np.exp(Gaussian(scale=noise.std).log_prob(x))
        ax.plot(x, normal, color=GREY, linewidth=1.2, linestyle=":", label="Gaussian, same std")
    ax.set(yscale="log", xlim=(-reach, reach), xlabel="noise on one coordinate", ylabel="density")
    ax.set_ylim(float(density.min()) / 3, float(density.max()) * 30)
    ax.set_title(f"The noise, {noise!r}", fontsize=11, color=INK, loc="left")
    _legend(ax, "upper left")


def _draw_curves(ax: Axes, laws: Sequence[Noise], tau: float) -> None:
    eps = np.linspace(0.0, 4.0, 801)
    for index, law in enumerate(laws):
        # equal Fisher information, 1: what makes laws equal when a shift is spread over many coordinates
        scaled = law.replace(scale=math.sqrt(law.replace(scale=1.0).fisher_information))
        delta = scaled.hockey_stick(eps, tau)
        name = repr(law.replace(scale=None)).replace("scale=None", "").replace("(, ", "(").replace(", )", ")")
        ax.plot(
            eps,
            np.maximum(delta, 1e-12),
            color=PALETTE[index % len(PALETTE)],
            linestyle=_DASHES[index % len(_DASHES)],
            linewidth=1.7,
            label=name.removesuffix("()"),
        )
    ax.set(yscale="log", xlim=(0, 4), xlabel="epsilon", ylabel="delta")
    ax.set_ylim(1e-5, 4.0)
    ax.set_title(f"Hiding a shift of {tau:g} in one coordinate", fontsize=11, color=INK, loc="left")
    _legend(ax, "upper right")
    note = "every law at\nFisher information 1"
    ax.text(0.5, 0.05, note, transform=ax.transAxes, ha="left", va="bottom", fontsize=8.5, color=INK)


def _legend(ax: Axes, where: Literal["upper left", "upper right", "lower left"]) -> None:
    ax.legend(loc=where, fontsize=8.5, frameon=False, labelcolor=INK, handlelength=2.2)
