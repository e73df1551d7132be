"""The one value that decides epsilon: frozen, comparable, validated, and the same after a trip through text."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisette import Guarantee, Mechanism, Poisson, guarantee, parse
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import HalfNormal, Tails
from noisette.errors import InvalidInput, ParseError, Unaccountable
from noisette.mechanism import mechanisms_hash, to_mechanism_tuple
from noisette.noise import Cauchy, Gaussian, Laplace, ScipyNoise, StudentT
from tests.support.helpers import refused

PAPER = Mechanism(
    encoder=Ranked(dim=26010, profiles=HalfNormal()), noise=StudentT(df=9, scale=1.0), rate=256 / 60000, steps=14062
)
CHANGES = [
    PAPER.replace(encoder=Ranked(dim=26011)),
    PAPER.replace(encoder=Ranked(dim=26010, radius=2.0)),
    PAPER.replace(encoder=Ranked(dim=26010, micro_batch=2)),
    PAPER.replace(encoder=Ranked(dim=26010, profiles=Tails())),
    PAPER.replace(encoder=Ranked(dim=26010, profiles=HalfNormal(levels=31))),
    PAPER.replace(encoder=Snap(dim=26010)),
    PAPER.replace(noise=StudentT(df=9.5, scale=1.0)),
    PAPER.replace(noise=StudentT(df=9, scale=math.nextafter(1.0, 2))),
    PAPER.replace(noise=StudentT(df=9)),
    PAPER.replace(noise=Gaussian(scale=1.0)),
    PAPER.replace(rate=math.nextafter(256 / 60000, 1)),
    PAPER.replace(steps=14061),
]


def test_frozen_hashable_comparable() -> None:
    again = parse(repr(PAPER), Mechanism)
    assert again == PAPER
    assert hash(again) == hash(PAPER)
    assert len({again, PAPER}) == 1
    for name in ("encoder", "noise", "rate", "steps"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(PAPER, name, 1)


def test_the_hash_is_stable() -> None:
    """Pinned: it is in ledgers and checkpoints, so a change of the text form is a breaking change."""
    assert PAPER.hash == "159c10d53e0df8ea"
    assert parse(repr(PAPER), Mechanism).hash == PAPER.hash


def test_the_hash_changes_with_every_field() -> None:
    hashes = {PAPER.hash, *(changed.hash for changed in CHANGES)}
    assert len(hashes) == len(CHANGES) + 1
    assert all(changed != PAPER for changed in CHANGES)


@pytest.mark.parametrize("mechanism", [PAPER, *CHANGES], ids=range(len(CHANGES) + 1))
def test_round_trips(mechanism: Mechanism) -> None:
    assert parse(repr(mechanism), Mechanism) == mechanism
    assert Mechanism.from_toml(mechanism.to_toml()) == mechanism


@given(st.floats(1e-30, 1), st.integers(0, 10**12), st.floats(1e-100, 1e100), st.floats(0.2, 1e3))
def test_any_numbers_round_trip(rate: float, steps: int, scale: float, df: float) -> None:
    mechanism = Mechanism(Ranked(dim=5), StudentT(df, scale), rate, steps)
    assert parse(repr(mechanism), Mechanism) == mechanism
    assert Mechanism.from_toml(mechanism.to_toml()) == mechanism


def test_quotes_in_toml() -> None:
    mechanism = Mechanism(Ranked(dim=5), ScipyNoise("t", 5, scale=1.0), 0.5, 1)
    assert Mechanism.from_toml(mechanism.to_toml()) == mechanism


def test_numbers_of_numpy_make_the_same_mechanism() -> None:
    ours = Mechanism(L2(dim=5, radius=0.5), Gaussian(1.5), steps=7, sampling=Poisson(0.25, max_batch=30, population=40))
    sampling = Poisson(np.float32(0.25), max_batch=np.int32(30), population=np.int64(40))
    theirs = Mechanism(
        L2(dim=np.int64(5), radius=np.float32(0.5)), Gaussian(np.float32(1.5)), steps=np.int64(7), sampling=sampling
    )
    assert (theirs, theirs.hash, repr(theirs), theirs.to_toml()) == (ours, ours.hash, repr(ours), ours.to_toml())
    promises = [guarantee(one, delta).to_dict() for one, delta in ((ours, 1e-3), (theirs, np.float64(1e-3)))]
    assert json.dumps(promises[0]) == json.dumps(promises[1])


@pytest.mark.parametrize("rate", [0, -0.1, 1.0000001, 2, math.nan, math.inf, "0.1", None, True, -0.0])
def test_bad_rates(rate: object) -> None:
    with refused(InvalidInput, "rate"):
        Mechanism(L2(dim=5), Gaussian(1.0), rate, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 1.5, math.nan, math.inf, "3", None, True])
def test_bad_steps(steps: object) -> None:
    with refused(InvalidInput, "steps"):
        Mechanism(L2(dim=5), Gaussian(1.0), 0.1, steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mechanism(Gaussian(1.0), L2(dim=5), 0.1, 1),
        lambda: Mechanism("L2(dim=5)", Gaussian(1.0), 0.1, 1),
        lambda: Mechanism(L2(dim=5), None, 0.1, 1),
        lambda: Mechanism(L2(dim=5), Gaussian, 0.1, 1),
        lambda: PAPER.replace(rate=2),
    ],
)
def test_bad_parts(make: Callable[[], Mechanism]) -> None:
    with refused(InvalidInput):
        make()


@pytest.mark.parametrize(
    "noise", [StudentT(9, 1.0), Laplace(1.0), Cauchy(1.0), ScipyNoise("norm", scale=1.0)], ids=repr
)
def test_a_ball_with_other_noise_is_refused(noise: object) -> None:
    """The worst case over an L2 ball is known for the Gaussian only."""
    for encoder in (L2(dim=5), L2(dim=5, micro_batch=2)):
        with refused(Unaccountable, "worst case"):
            Mechanism(encoder, noise, 0.1, 1)
        with refused(Unaccountable, "worst case"):
            parse(f"Mechanism(encoder={encoder!r}, noise={noise!r}, rate=0.1, steps=1)", Mechanism)


def test_what_has_a_known_worst_case_is_accepted() -> None:
    """A ball with Gaussian noise, and a profile with any law."""
    assert Mechanism(L2(dim=5), Gaussian(1.0), 1.0, 0).rate == 1.0
    for noise in (Gaussian(1.0), Laplace(1.0), Cauchy(1.0), StudentT(9), ScipyNoise("t", 5, scale=1.0)):
        assert Mechanism(Ranked(dim=5), noise, 0.1, 1).noise == noise


@pytest.mark.parametrize(
    "text",
    [
        "",
        "encoder =",
        "[[[",
        'encoder = "L2(dim=5)"',
        PAPER.to_toml() + "delta = 1e-5\n",
        PAPER.to_toml().replace("rate", "rates"),
        PAPER.to_toml().replace("Ranked", "Ranke"),
        PAPER.to_toml().replace("StudentT(", "print("),
        PAPER.to_toml().replace("rate = 0", 'rate = "0'),
        'encoder = 5\nnoise = "Gaussian(scale=1)"\nrate = 0.1\nsteps = 1\n',
        'encoder = "L2(dim=5)"\nnoise = "Gaussian(scale=1)"\nrate = nan\nsteps = 1\n',
        'encoder = "L2(dim=5)"\nnoise = "Gaussian(scale=1)"\nrate = 0.1\nsteps = 1.5\n',
        'encoder = "L2(dim=5)"\nnoise = "Gaussian(scale=1)"\nrate = 2024-01-01\nsteps = 1\n',
        'encoder = "Gaussian(scale=1)"\nnoise = "L2(dim=5)"\nrate = 0.1\nsteps = 1\n',
    ],
)
def test_bad_toml(text: str) -> None:
    with refused(InvalidInput):
        Mechanism.from_toml(text)


def test_toml_errors_are_parse_errors() -> None:
    with refused(ParseError, "not TOML"):
        Mechanism.from_toml("=")


def test_runs() -> None:
    """The paper's Z_1..Z_T: a tuple of mechanisms with a hash of its own, in which order counts."""
    first, second = PAPER, PAPER.replace(noise=StudentT(9, 2.0))
    assert to_mechanism_tuple(first) == (first,)
    assert to_mechanism_tuple([first, second]) == (first, second)
    assert mechanisms_hash((first,)) == first.hash
    assert (
        len(
            {
                mechanisms_hash((first, second)),
                mechanisms_hash((second, first)),
                mechanisms_hash((first, first)),
                first.hash,
            }
        )
        == 4
    )


@pytest.mark.parametrize("epsilon", [0.99950133, 2.9990001, 1.23412, 54.051, 1e-7, 3.0, float("inf")])
def test_no_smaller_epsilon_is_shown_than_there_is(epsilon: float) -> None:
    shown = str(Guarantee(epsilon, 1e-5, "pld", "bound", PAPER.hash, "one profile")).split()[2]
    assert float(shown) >= epsilon
    assert float(shown) <= epsilon * 1.001


def test_guarantee() -> None:
    bound = Guarantee(1.23456, 1e-5, "pld", "bound", PAPER.hash, "one profile")
    assert str(bound) == "epsilon = 1.235 at delta = 1e-05"
    assert (bound.flags, bound.to_dict()["flags"], bound.qualification) == ((), [], "")
    estimate = dataclasses.replace(bound, kind="estimate")
    assert str(estimate) == "epsilon = 1.235 at delta = 1e-05 (estimate)"
    both = estimate.with_flags("unsafe").with_flags("reproducible", "unsafe")
    assert both.flags == ("estimate", "reproducible", "unsafe")
    assert "estimate; reproducible: not for release; unsafe: private metrics" in str(both)
    with refused(InvalidInput, match="'secret' is not a stamp"):
        bound.with_flags("secret")
    assert bound.to_dict()["mechanism_hash"] == PAPER.hash
    assert "add/remove" in bound.adjacency
