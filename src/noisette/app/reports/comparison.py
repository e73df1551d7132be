"""A picture of noises at equal epsilon: the error that each leaves on a released coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from noisette.accounting.compare import Row
from noisette.app.reports._mpl_style import PALETTE, panels, save

__all__ = ["draw_comparison"]


def draw_comparison(rows: Sequence[Row], title: str, path: str | Path) -> Path:
    """Bars of mean absolute, root mean square and effective error for every noise, as a PNG at `path`."""
    figure, (axis,) = panels(1, width=7.2, height=0.6 * len(rows) + 1.6)
    places = np.arange(len(rows))[::-1]
    series: tuple[tuple[str, list[float | None]], ...] = (
        ("mean absolute (median* where infinite)", [*(row.l1 for row in rows)]),
        ("root mean square", [row.l2 for row in rows]),
        ("effective sigma (ideal denoiser, small shifts)", [row.effective_sigma for row in rows]),
    )
    for index, (label, values) in enumerate(series):
        drawn = [0.0 if value is None else value for value in values]
        bars = axis.barh(places + 0.26 - 0.26 * index, drawn, height=0.24, color=PALETTE[index], label=label)
        texts = ["infinite" if value is None else f"{value:.3g}" for value in values]
        axis.bar_label(bars, texts, padding=3, fontsize=7)
    names = [row.law + ("*" if row.median else "") + "".join(f"\n({stamp})" for stamp in row.flags) for row in rows]
    axis.set_yticks(places, names)
    axis.set(xlabel="error per coordinate", title=title)
    axis.margins(x=0.12)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return save(figure, path)
