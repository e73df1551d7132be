"""One look for every picture: a palette that colour-blind readers can tell apart, thin axes, no global state."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from noisette._io import reason
from noisette.errors import InvalidInput, MissingExtra

try:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    raise MissingExtra.of("matplotlib", extra="plot") from None

__all__ = ["GREY", "INK", "PALETTE", "panels", "save"]

INK: Final = "#222222"
GREY: Final = "#8c8c8c"
PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, in the order of use."""


def panels(count: int, *, width: float = 4.1, height: float = 3.5, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with `count` plots side by side, in one row or several.

    >>> figure, axes = panels(2)
    >>> len(axes)
    2
    """
    across = -(-count // rows)
    figure = Figure(figsize=(width * across, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, across, index + 1) for index in range(count)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GREY)
        ax.tick_params(colors=INK, labelsize=9, color=GREY)
        ax.tick_params(which="minor", color=GREY, length=2)
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set(fontsize=10, color=INK)
    return figure, axes


def save(figure: Figure, path: str | Path) -> Path:
    """Write `figure` as a PNG, with its folder, and return the path."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, facecolor="white", format="png")
    except OSError as error:
        raise InvalidInput(
            f"the picture {path} cannot be written ({reason(error)}).", hint="choose another place for it"
        ) from None
    return path
