"""Mechanisms to audit, one for every noise of the library and every kind of encoder; and faults to plant in them."""

from __future__ import annotations

from typing import Any

import pytest

from noisette import Encoder, Mechanism, Noise
from noisette._spec import registered
from noisette.audit.step import attacks
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Blocks, HalfNormal, Tails
from noisette.noise import Gaussian

FEW = HalfNormal(levels=4)  # few levels are quickly accounted
ENCODERS: tuple[Encoder, ...] = (
    Ranked(dim=20, profiles=FEW),
    Snap(dim=30, profiles=FEW, radius=0.1),
    Ranked(dim=20, profiles=Tails(shapes=(2.0, 0.5), levels=3)),
    Ranked(dim=24, profiles=Blocks(dims=(16, 8), shares=(0.6, 0.3), profiles=FEW)),
    Snap(dim=50, profiles=FEW),
)
LAWS: tuple[Noise, ...] = tuple(
    law.examples()[0] for law in registered(Noise).values() if law.__module__.startswith("noisette.")
)
NAMES = [type(law).__name__ for law in LAWS]


def mechanism(law: Noise, number: int = 0) -> Mechanism:
    """A mechanism with this noise; the encoder and the rate go round with `number`."""
    encoder = ENCODERS[number % len(ENCODERS)]
    scaled = law.replace(scale=law.known_scale * encoder.radius)
    return Mechanism(encoder, scaled, rate=(0.1, 0.02, 1.0, 0.5)[number % 4], steps=1)


def kernel(number: int) -> str:
    """What NOISETTE_KERNEL says for this number: the native kernel and the reference take turns."""
    return "off" if number // 2 % 2 else ""


def caught(mechanism: Mechanism, steps: int, seed: int) -> bool:
    """Whether the likelihood ratio alone refutes; regimes after the first that does cannot change a verdict."""
    found = attacks(mechanism, steps=steps, level=1e-4, seed=seed)
    return any(point.refutes for attack in found for point in attack.points)


def ball(rate: float = 0.2) -> Mechanism:
    return Mechanism(L2(dim=20), Gaussian(scale=1.0), rate=rate, steps=1)


def quieter(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Plant noise that is `factor` times what it should be."""
    honest = Noise.sample

    def sample(self: Noise, *args: Any, **options: Any) -> Any:
        return factor * honest(self, *args, **options)

    monkeypatch.setattr(Noise, "sample", sample)
