"""The picture of a run: how good its model is on test data, and epsilon, over its steps."""

from __future__ import annotations

from pathlib import Path

from noisette.app.reports._mpl_style import PALETTE, panels, save
from noisette.app.runs.metrics import read

__all__ = ["draw_accuracy"]


def draw_accuracy(folder: str | Path) -> Path:
    """Draw accuracy.png from the metrics of the run in `folder`."""
    folder = Path(folder)
    points = read(folder)
    figure, (axis,) = panels(1, width=6.4, height=3.8)
    steps = [point.updates for point in points]
    other = axis.twinx()
    other.plot(steps, [point.epsilon for point in points], color=PALETTE[1], linestyle="--", label="epsilon spent")
    found = next((point.measured for point in points if point.measured is not None), None)
    name, factor = ("accuracy", 100) if found is None or found.key == "accuracy" else (found.name, 1)
    axis.plot(
        steps,
        [float("nan") if point.measured is None else factor * point.measured.value for point in points],
        color=PALETTE[0],
        marker=".",
        label=f"test {name}",
    )
    axis.set(xlabel="step", ylabel=f"test {name}{' (%)' if factor == 100 else ''}", title=folder.name)
    other.set_ylabel(points[-1].label if points else "epsilon")
    other.set_ylim(bottom=0)
    other.spines[["top"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, folder / "accuracy.png")
