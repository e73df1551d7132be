"""A picture of an audit: what was measured, over the curve that is claimed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from noisette.app.reports._mpl_style import GREY, PALETTE, panels, save
from noisette.audit import Audit

__all__ = ["draw_audit"]

_MARKS = {"add": ("o", "is it in?"), "remove": ("s", "is it out?")}


def draw_audit(audit: Audit, title: str, path: str | Path) -> Path:
    """Measured points with their bounds over the claimed curve, a plot for each regime, as a PNG at `path`."""
    figure, axes = panels(len(audit.claimed), width=3.9, height=4.3)
    rates = np.linspace(0.0, 1.0, 501)
    for axis, (regime, curve) in zip(axes, audit.claimed.items(), strict=True):
        claimed = curve.false_negative(rates)
        axis.fill_between(rates, claimed, color=PALETTE[1], alpha=0.12, linewidth=0, label="refutes the claim")
        axis.plot(rates, claimed, color=PALETTE[1], label="claimed: no test errs less")
        axis.plot([0, 1], [1, 0], color=GREY, linestyle=":", label="guessing")
        for direction, (mark, label) in _MARKS.items():
            points = [p for p in audit.points if (p.regime, p.direction) == (regime, direction)]
            x, y = [p.false_positive for p in points], [p.false_negative for p in points]
            bounds = (
                [[0.0] * len(points), [p.false_positive_bound - p.false_positive for p in points]],
                [[0.0] * len(points), [p.false_negative_bound - p.false_negative for p in points]],
            )
            axis.errorbar(
                x, y, xerr=bounds[0], yerr=bounds[1], fmt=mark, color=PALETTE[0], ecolor=PALETTE[5],
                markersize=4, elinewidth=1, markerfacecolor=PALETTE[0] if direction == "add" else "white",
                label=f"measured: {label}",
            )  # fmt: skip
        axis.set(xlabel="false positive rate", title=regime, xlim=(-0.01, 1), ylim=(-0.01, 1))
    axes[0].set_ylabel("false negative rate")
    figure.suptitle(f"{title}: {audit.verdict}", fontsize=11)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return save(figure, path)
