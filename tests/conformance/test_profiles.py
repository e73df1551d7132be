"""P1's other half for every registered profile family."""

from __future__ import annotations

import numpy as np
import pytest

from noisette._spec import registered
from noisette.encoders.profiles import HalfNormal, Profiles, ProfileSet
from tests.conformance.encoder_checks import check_profiles

FAMILIES = [family for kind in registered(Profiles).values() for family in kind.examples()]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_family(family: Profiles) -> None:
    check_profiles(family)


def test_every_family_is_here() -> None:
    assert {"Blocks", "Empirical", "HalfNormal", "PaperGaussian", "Power", "Quantiles", "Tails"} <= set(
        registered(Profiles)
    )


def test_a_profile_that_is_not_normalised_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part in 2^40 too long is enough to be seen."""
    original = ProfileSet.normalized.__func__

    def too_long(cls: type[ProfileSet], *args: object) -> ProfileSet:
        built = original(cls, *args)
        return ProfileSet(built.levels * (1 + 2.0**-40), built.counts)

    monkeypatch.setattr(ProfileSet, "normalized", classmethod(too_long))
    with pytest.raises(AssertionError, match="too long"):
        check_profiles(FAMILIES[-1])


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 1000, 26010])
def test_families_without_a_dimension_fit_any(dim: int) -> None:
    for kind in registered(Profiles).values():
        if kind.__name__ not in {"Blocks", "Empirical"}:
            check_profiles(kind.examples()[0], dim)


def test_counts_do_not_overflow() -> None:
    """Ten million coordinates: the levels stay a few dozen, and the norm is still exact."""
    (block,) = HalfNormal().build(10_000_000)
    assert len(block.counts) <= 33
    check_profiles(HalfNormal(), 10_000_000)
    assert np.all(block.counts >= 1)
