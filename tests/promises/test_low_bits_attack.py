"""The attack on low bits: without a grid one release after another tells the sum behind it, with the grid none does."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats

from noisette import Mechanism, Noise, Private, guarantee
from noisette._quantization import Grid
from noisette._release import release
from noisette._spec import registered
from noisette.encoders import Ranked
from noisette.encoders.profiles import HalfNormal
from noisette.random import Generator

LEVEL, DELTA = 1e-6, 1e-5
COUNTS = [pytest.param(100_000, id="a few"), pytest.param(1_000_000, id="a million", marks=pytest.mark.slow)]
LAWS = [
    law
    for law in registered(Noise).values()
    if law.__module__.startswith("noisette.") and law.sampling_error is not None
]


def one_coordinate(noise: Noise, count: int) -> Mechanism:
    """`count` coordinates that one example moves by 1 each: as many independent releases of one coordinate."""
    return Mechanism(Ranked(count, HalfNormal(levels=1), math.sqrt(count)), noise, rate=1.0, steps=1)


def releases(noise: Noise, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What is released of two neighbouring sums, 0 and 1."""
    mechanism, generator = one_coordinate(noise, count), Generator(7)
    sums = (torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.float64))
    first, second = (release(mechanism, Private(total), generator=generator).values.numpy() for total in sums)
    return first, second


def events(values: np.ndarray) -> Iterator[np.ndarray]:
    """Low bits, by place: releases close to either sum that are no multiples of a power of two."""
    for middle in (0.0, 1.0):
        near = np.abs(values - middle) < 0.5
        for place in range(4, 64, 3):
            scaled = np.ldexp(values, place)
            yield near & (scaled != np.round(scaled))
            yield near & (np.abs(np.fmod(scaled, 2.0)) == 1)


def refuted(noise: Noise, count: int) -> bool:
    """Whether some event is more likely under one sum than epsilon and delta allow; Clopper and Pearson, all events."""
    epsilon = guarantee(one_coordinate(noise, 1), DELTA).epsilon
    seen = [[int(event.sum()) for event in events(values)] for values in releases(noise, count)]
    level = LEVEL / (4 * len(seen[0]))
    for one, other in (seen, seen[::-1]):
        for hits, misses in zip(one, other, strict=True):
            least = stats.beta.ppf(level, hits, count - hits + 1) if hits else 0.0
            most = stats.beta.isf(level, misses + 1, count - misses) if misses < count else 1.0
            if least > math.exp(epsilon) * most + DELTA:
                return True
    return False


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_low_bits_tell_nothing(law: type[Noise], count: int) -> None:
    assert not refuted(law.examples()[0].replace(scale=1.0), count)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_without_the_grid_they_refute_epsilon(law: type[Noise], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What libraries do: the sum plus the noise, as floats come out. That the attack can see is what this shows."""
    monkeypatch.setattr(Grid, "add_noise", lambda self, total, noise: total + noise)
    assert refuted(law.examples()[0].replace(scale=1.0), count)
