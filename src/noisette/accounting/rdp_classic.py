"""The paper's accountant: Renyi divergences with the classic conversion, so that its numbers come out again."""

from __future__ import annotations

import math

import numpy as np

from noisette.accounting import rdp
from noisette.accounting._pmf import Array
from noisette.mechanism import Mechanisms

__all__ = ["RdpClassic", "epsilon_classic"]


class RdpClassic(rdp.Rdp):
    """Renyi divergences with the paper's conversion."""

    name = "rdp-classic"

    def epsilon(self, mechanisms: Mechanisms, delta: float) -> float:
        return epsilon_classic(rdp.renyi(mechanisms), delta)


def epsilon_classic(divergences: Array, delta: float) -> float:
    """The conversion that the paper uses, at its orders: the least of RDP + log(1/delta) / (order - 1)."""
    return rdp.least(divergences[np.isin(rdp.ORDERS, rdp.INTEGERS)] + math.log(1 / delta) / (rdp.INTEGERS - 1))
