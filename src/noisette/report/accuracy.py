"""The picture of a run: test accuracy and epsilon over its steps."""

from __future__ import annotations

import json
from pathlib import Path

from noisette.report.style import PALETTE, panels, save

__all__ = ["draw_accuracy"]


def draw_accuracy(folder: Path) -> Path:
    """Draw accuracy.png from the metrics of the run in `folder`."""
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figure, (axis,) = panels(1, width=6.4, height=3.8)
    steps = [point["updates"] for point in points]
    other = axis.twinx()
    other.plot(steps, [point["epsilon"] for point in points], color=PALETTE[1], linestyle="--", label="epsilon spent")
    axis.plot(
        steps,
        [100 * point["accuracy"] if "accuracy" in point else float("nan") for point in points],
        color=PALETTE[0],
        marker=".",
        label="test accuracy",
    )
    axis.set(xlabel="step", ylabel="test accuracy (%)", title=folder.name)
    stamps = points[-1]["stamps"] if points else []
    other.set_ylabel(f"epsilon ({', '.join(stamps)})" if stamps else "epsilon")
    other.set_ylim(bottom=0)
    other.spines[["top"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, folder / "accuracy.png")
