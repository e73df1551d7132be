"""What is added to an ideal run, against runs whose privacy can be told exactly."""

from __future__ import annotations

import math

import numpy as np

from noisette.accounting._corrections import Correction, deltas_after_correction, epsilon_after_correction


def test_the_search_ends_on_the_safe_side() -> None:
    """A made-up curve, delta = e^-epsilon, where the answer solves a quadratic; beyond its end there is none."""

    def epsilon(delta: float) -> float:
        return -math.log(delta)

    for chance in (1e-12, 1e-7, 0.2e-4 / 8.1):
        found = epsilon_after_correction(Correction(chance), 0.01, epsilon)
        exact = math.log((0.01 - chance - math.sqrt((0.01 - chance) ** 2 - 4 * chance)) / (2 * chance))
        assert exact <= found <= exact * (1 + 1e-5)
    assert epsilon_after_correction(Correction(1e-4), 0.01, epsilon) == math.inf
    assert epsilon_after_correction(Correction(), 0.01, epsilon) == epsilon(0.01)
    for shift in (1e-9, 0.01, 0.5):  # delta e^-shift is left
        exact = epsilon(0.01) + 3 * shift
        assert exact <= epsilon_after_correction(Correction(0.0, shift), 0.01, epsilon) <= exact * (1 + 1e-5)


def test_no_run_within_the_addition_loses_more() -> None:
    """Ideal pairs of laws on five outcomes; real ones that are off by a factor and a chance, drawn at random.

    The exact delta of the real pair is never above what is claimed at any epsilon. With a shift that is not counted, or
    counted once, it often is.
    """
    rng = np.random.default_rng(0)
    epsilons = np.linspace(0.0, 3.0, 31)
    missed = {"none": 0, "once": 0}
    for _ in range(300):
        ideal = rng.dirichlet(np.ones(5), size=2)
        shift, chance = rng.uniform(0, 0.3), rng.uniform(0, 0.02)
        real = [_moved(law, shift, chance, rng) for law in ideal]

        def curve(eps: np.ndarray, pair: np.ndarray = ideal) -> np.ndarray:
            return np.maximum(pair[0] - np.exp(eps)[:, None] * pair[1], 0).sum(axis=1)

        exact = curve(epsilons, np.array(real))
        assert np.all(exact <= deltas_after_correction(Correction(chance, shift), epsilons, curve) + 1e-12)
        missed["none"] += bool(np.any(exact > curve(epsilons) + 1e-12))
        missed["once"] += bool(np.any(exact > math.exp(shift / 2) * curve(epsilons - shift) + chance + 1e-12))
    assert missed["none"] > 100
    assert missed["once"] > 3


def _moved(law: np.ndarray, shift: float, chance: float, rng: np.random.Generator) -> np.ndarray:
    """A law whose events have the chances of those of `law` up to a factor e^shift and a chance, in both directions."""
    near = law * np.exp(rng.choice([-shift, shift], (200, 5)))
    near /= near.sum(axis=1, keepdims=True)
    every = np.arange(len(near))
    giver, taker = rng.permuted(np.tile(np.arange(5), (len(near), 1)), axis=1)[:, :2].T
    moved = np.minimum(chance, near[every, giver])
    near[every, giver] -= moved
    near[every, taker] += moved
    factor = math.exp(shift)
    off = [np.maximum(a - factor * b, 0).sum(axis=1) for a, b in ((near, law), (law, near))]
    far = np.where(np.maximum(*off) <= chance, np.abs(near - law).sum(axis=1), 0.0)
    best: np.ndarray = near[far.argmax()] if far.any() else law
    return best
