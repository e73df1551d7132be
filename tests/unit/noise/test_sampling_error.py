"""Samplers are as accurate as they say: against mpmath, from the middle to tails of 2**-100."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
import torch

from noisette import Generator, Noise
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace, Logistic, Sech, StudentT, VarianceGamma
from noisette.noise._rejection_sampler import strips
from tests.support.bucketed import VARIANTS
from tests.support.mpmath_noise import reference

FEW = [pytest.param(60, id="a few"), pytest.param(10_000, id="all", marks=pytest.mark.slow)]  # Bessel functions
COUNTS = [pytest.param(600, id="a few"), pytest.param(10_000, id="all", marks=pytest.mark.slow)]

INVERSES: dict[Noise, Callable[[mp.mpf], mp.mpf]] = {
    Laplace(1.0): lambda u: -mp.log(u),
    Logistic(1.0): lambda u: mp.log(2 / u - 1),
    Sech(1.0): lambda u: -2 / mp.pi * mp.log(mp.tan(mp.pi / 4 * u)),
    Cauchy(1.0): lambda u: mp.cot(mp.pi / 2 * u),
}
TURNED = [Gaussian(1.0), StudentT(1, 1.0), StudentT(1.5, 1.0), StudentT(3, 1.0), StudentT(9, 1.0), StudentT(1e6, 1.0)]
KEPT = [
    *(GeneralizedGaussian(shape, 1.0) for shape in (0.2, 0.7, 1.5, 4, 50)),
    *(VarianceGamma(shape, 1.0) for shape in (0.501, 0.8, 1.3, 2, 4.5, 50)),
]


def uniforms(count: int, seed: int) -> np.ndarray:
    """On (0, 1]: a third as they come, a third down to 2**-100, and a third close to 1."""
    rng = np.random.default_rng(seed)
    third = count // 3 + 1
    parts = rng.uniform(size=third), 2.0 ** -rng.uniform(0, 100, third), 1 - 2.0 ** -rng.uniform(1, 53, third)
    return rng.permutation(np.concatenate(parts))[:count]


def off(found: np.ndarray, exact: list[mp.mpf]) -> float:
    """The largest distance, in 2**-52 of the larger of 1 and the exact value."""
    pairs = zip(found.tolist(), exact, strict=True)
    return float(max(abs(value - true) / max(1, abs(true)) for value, true in pairs) * 2**52)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("noise", INVERSES, ids=repr)
def test_inverses(noise: Noise, count: int) -> None:
    u = uniforms(count, seed=1)
    found = off(noise._abs_quantile(u), [INVERSES[noise](mp.mpf(value)) for value in u.tolist()])
    assert noise.sampling_error is not None
    assert found <= noise.sampling_error.position - 2, "two are for the uniforms and the sign"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("noise", TURNED, ids=repr)
def test_pairs_and_angles(noise: Gaussian | StudentT, count: int) -> None:
    """The uniforms of the angle are rounded as well: that is in what is stated."""
    u, v = uniforms(count, seed=2), uniforms(count, seed=3)
    if isinstance(noise, StudentT):
        v *= np.random.default_rng(4).choice([-1.0, 1.0], count)
    made = noise._turned(torch.from_numpy(u.copy()), torch.from_numpy(v.copy())).reshape(-1, count)[0].numpy()
    ideal = []
    for one, angle in zip(map(mp.mpf, u.tolist()), map(mp.mpf, v.tolist()), strict=True):
        if isinstance(noise, StudentT):
            ideal.append(mp.sqrt(noise.df * mp.expm1(-2 / mp.mpf(noise.df) * mp.log(one))) * mp.sin(mp.pi / 2 * angle))
        else:
            ideal.append(mp.sqrt(-2 * mp.log(one)) * mp.cos(2 * mp.pi * angle))
    assert noise.sampling_error is not None
    rest = 2 * np.pi * 12 if isinstance(noise, Gaussian) else 3  # half a unit of an angle, as far out as 12; and more
    assert off(made, ideal) <= noise.sampling_error.position - rest / 2


class Given(Generator):
    """Hands out these words, in their order."""

    def __init__(self, words: np.ndarray) -> None:
        super().__init__(0)
        self._given = words

    def random_words(self, n: int) -> np.ndarray:
        found, self._given = self._given[:n].copy(), self._given[n:]
        return found


def words_of(numbers: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The words from which `deep` uniforms of so many bits are joined to these numbers in (0, 1]."""
    wholes = [min(int(Fraction(number) * 2**bits), 2**bits - 1) for number in numbers.tolist()]
    return (
        np.array([whole >> 64 for whole in wholes], dtype=np.uint64),
        np.array([whole % 2**64 for whole in wholes], dtype=np.uint64),
    )


def turns(count: int, seed: int) -> np.ndarray:
    """Words for an angle: a third as they come, the others close to an axis, on either side of it."""
    rng = np.random.default_rng(seed)
    found, third = rng.integers(0, 2**64, count, dtype=np.uint64), count // 3
    near = (2.0 ** rng.uniform(0, 61, 2 * third)).astype(np.uint64)
    axis = rng.integers(0, 4, 2 * third).astype(np.uint64) << np.uint64(62)
    found[: 2 * third] = axis + np.where(np.arange(2 * third) % 2, near, ~near)
    return found


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("variant", [*VARIANTS, "off"])
def test_pairs_from_words(variant: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All the way from words: the angle is exact, and of the radius the uniform's own rounding counts elsewhere."""
    monkeypatch.setenv("NOISETTE_KERNEL", variant)
    count += count % 2 + 1  # odd, so that no width of a vector divides it
    (high, low), turn = words_of(uniforms(count, seed=6), 128), turns(count, seed=7)
    made = Gaussian(1.0)._sample(2 * count, Given(np.concatenate([high, low, turn])))
    u = Given(np.concatenate([high, low])).uniforms_128(count).tolist()
    radii = [mp.sqrt(-2 * mp.log(mp.mpf(one))) for one in u]
    angles = [mp.pi * (2 * int(one) + 1) / 2**64 for one in turn.tolist()]
    ideal = [radius * turned(angle) for turned in (mp.cos, mp.sin) for radius, angle in zip(radii, angles, strict=True)]
    assert off(made, ideal) <= (128 if variant == "off" else 3)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("df", [1.0, 1.5, 3.0, 9.0, 30.0, 1e6])
@pytest.mark.parametrize("variant", [*VARIANTS, "off"])
def test_student_from_words(variant: str, df: float, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KERNEL", variant)
    noise, count = StudentT(df, 1.0), count + count % 2 + 1
    (high, low), (turn, rest) = words_of(uniforms(count, seed=8), 128), words_of(uniforms(count, seed=9), 127)
    turn = turn << np.uint64(1) | np.random.default_rng(10).integers(0, 2, count).astype(np.uint64)
    words = np.concatenate([turn, rest, high, low])
    made = noise._sample(count, Given(words))
    given = Given(words)
    signs, angles = given.signed_uniforms(count)
    exponents = [-2 / mp.mpf(df) * mp.log(mp.mpf(one)) for one in given.uniforms_128(count).tolist()]
    ideal = [
        mp.sqrt(df * mp.expm1(exponent)) * mp.sin(mp.pi / 2 * mp.mpf(angle))
        for exponent, angle in zip(exponents, (signs * angles).tolist(), strict=True)
    ]
    assert noise.sampling_error is not None
    assert off(made, ideal) <= noise.sampling_error.position - 1.5, "the uniform of the angle is rounded as well"


@pytest.mark.parametrize("count", FEW)
@pytest.mark.parametrize("noise", KEPT, ids=repr)
def test_densities(noise: Noise, count: int) -> None:
    accuracy, ends = noise.sampling_error, strips(noise)._starts
    assert accuracy is not None
    x = np.abs(np.interp(np.random.default_rng(5).uniform(0, len(ends) - 1, count), np.arange(len(ends)), ends))
    law = reference(noise)
    found = noise._log_prob(x)
    true = [law.log_prob(mp.mpf(value)) for value in x.tolist()]
    errors = [abs(one - other) / (1 + abs(other)) for one, other in zip(found.tolist(), true, strict=True)]
    # a point is rounded itself, and so is the exponential
    assert float(max(errors) * 2**52) <= accuracy.density / 2


@pytest.mark.parametrize("noise", KEPT, ids=repr)
def test_strips_are_drawn_as_often_as_their_areas_say(noise: Noise) -> None:
    """In fractions: the bounds between which a uniform must fall, beside the areas of the strips."""
    made = strips(noise)
    areas = [Fraction(h) * Fraction(w) for h, w in zip(made._heights.tolist(), made._widths.tolist(), strict=True)]
    total = sum(areas) + Fraction(made._tail)
    bounds = [Fraction(bound) for bound in made._covered.tolist()]
    drawn = [after - before for before, after in pairwise(bounds)]
    worst = max(abs(one / (area / total) - 1) for one, area in zip(drawn, reversed(areas), strict=True))
    assert float(worst) <= made.error / 2
    assert made.error < 2.0**-38
    assert float(made._tail) < 2.0**-99
