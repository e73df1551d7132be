"""How batches are drawn is a part of the mechanism, and a plain rate is short for it."""

from __future__ import annotations

from typing import Any

import pytest

from noisette import Guarantee, Mechanism, Poisson, guarantee, parse
from noisette.encoders import L2
from noisette.errors import InvalidInput, Unaccountable
from noisette.mechanism import privacy_unit
from noisette.noise import Gaussian
from tests.support.helpers import refused

RATE = 256 / 60000
SAMPLINGS = [
    Poisson(RATE),
    Poisson(RATE, max_batch=512, population=60000),
    Poisson(RATE, unit="unit"),
    Poisson(RATE, max_batch=512, population=60000, unit="unit"),
    Poisson(RATE, max_batch=513, population=60000),
    Poisson(RATE, max_batch=512, population=60001),
]


def made(sampling: Poisson, steps: int = 10) -> Mechanism:
    return Mechanism(L2(dim=9), Gaussian(scale=1.1), sampling=sampling, steps=steps)


def test_a_rate_is_short_for_plain_sampling() -> None:
    """Equal, with the text and the hash that such mechanisms have always had."""
    plain = Mechanism(L2(dim=9), Gaussian(scale=1.1), 0.25, 10)
    assert plain == made(Poisson(0.25))
    assert repr(plain) == repr(made(Poisson(0.25)))
    assert repr(plain).endswith("rate=0.25, steps=10)")
    assert plain.hash == made(Poisson(0.25)).hash == "2a35031495de36d1"
    assert plain.to_toml().splitlines()[2:] == ["rate = 0.25", "steps = 10"]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_round_trips(sampling: Poisson) -> None:
    mechanism = made(sampling)
    assert parse(repr(mechanism), Mechanism) == mechanism
    assert parse(repr(mechanism), Mechanism).hash == mechanism.hash
    assert Mechanism.from_toml(mechanism.to_toml()) == mechanism
    assert mechanism.replace(steps=3).sampling == sampling
    assert mechanism.replace(rate=0.5).sampling == sampling.replace(rate=0.5)
    assert mechanism.rate == RATE


def test_every_part_of_it_is_in_the_hash() -> None:
    assert len({made(sampling).hash for sampling in SAMPLINGS}) == len(SAMPLINGS)


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch": 5},
        {"population": 5},
        {"max_batch": 0, "population": 5},
        {"max_batch": 2.5, "population": 5},
        {"max_batch": True, "population": 5},
        {"max_batch": 3, "population": "5"},
        {"unit": "user"},
        {"unit": None},
    ],
    ids=str,
)
def test_bad_sampling(options: dict[str, Any]) -> None:
    with refused(InvalidInput):
        Poisson(0.1, **options)


def test_rate_or_sampling() -> None:
    for options in ({}, {"rate": 0.1, "sampling": Poisson(0.1)}):
        with refused(InvalidInput, "of rate and sampling is given"):
            Mechanism(L2(dim=9), Gaussian(scale=1.1), steps=1, **options)
    for other in ("Poisson(0.1)", 0.1, object):
        with refused(InvalidInput, "no accountant here bounds"):
            Mechanism(L2(dim=9), Gaussian(scale=1.1), steps=1, sampling=other)  # type: ignore[arg-type]


def test_the_guarantee_says_what_it_is_for() -> None:
    of_units, of_examples = made(Poisson(0.1, unit="unit")), made(Poisson(0.1))
    assert guarantee(of_units, 1e-5).adjacency == "add/remove one unit with all its examples, Poisson sampling"
    assert guarantee(of_examples, 1e-5).adjacency == Guarantee(1.0, 1e-5, "pld", "bound", "", "").adjacency
    assert guarantee(of_units, 1e-5).epsilon == guarantee(of_examples, 1e-5).epsilon
    assert privacy_unit(()) == "example"
    with refused(Unaccountable, "others a unit"):
        guarantee((of_units, of_examples), 1e-5)
    with refused(InvalidInput, "one whole unit would pass"):
        guarantee(of_units, 0.1, examples=20)
