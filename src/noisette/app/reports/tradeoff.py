"""Pictures of what an attacker can do at best: delta against epsilon, and the trade-off of a membership test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from noisette.accounting.tradeoff import Tradeoff
from noisette.app.reports._mpl_style import GREY, PALETTE, panels, save

__all__ = ["draw_tradeoff"]


def draw_tradeoff(curves: Mapping[str, Tradeoff], path: str | Path) -> Path:
    """Draw labelled trade-offs side by side as a PNG at `path`."""
    figure, (left, right) = panels(2, width=4.6, height=3.8)
    rates = np.linspace(0.0, 1.0, 401)
    right.plot([0, 1], [1, 0], color=GREY, linestyle=":", label="guessing")
    for (label, curve), color in zip(curves.items(), PALETTE, strict=False):
        left.semilogy(curve.epsilons, np.maximum(curve.deltas, 1e-12), color=color, label=label)
        right.plot(
            rates, curve.false_negative(rates), color=color, label=f"best attack (advantage {curve.advantage:.3f})"
        )
    left.set(xlabel="epsilon", ylabel="delta", title="Every (epsilon, delta) that holds", ylim=(1e-10, 1.0))
    right.set(
        xlabel="false positive rate", ylabel="false negative rate", title="Membership test", xlim=(0, 1), ylim=(0, 1)
    )
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8)
    return save(figure, path)
