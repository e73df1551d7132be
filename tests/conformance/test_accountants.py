"""Every accountant that is registered, held to closed forms; what one does not support it refuses."""

from __future__ import annotations

import math

import pytest

from noisette import Mechanism, guarantee
from noisette.accounting import Accountant, accountants
from noisette.accounting.base import accountant
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput, Unaccountable
from noisette.noise import Gaussian, Laplace
from tests.support.accounting_references import DELTA, gaussian_epsilon
from tests.support.helpers import refused

PLAIN = Mechanism(L2(dim=4), Gaussian(scale=2.0), rate=1.0, steps=1)


@pytest.mark.parametrize("name", accountants())
@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 1), (2.0, 1), (2.0, 9), (30.0, 100)])
def test_never_below_the_gaussian_closed_form(name: str, sigma: float, steps: int) -> None:
    mechanism = Mechanism(L2(dim=4), Gaussian(sigma), rate=1.0, steps=steps)
    assert accountants()[name].supports(mechanism)
    found = guarantee(mechanism, DELTA, name)
    assert found.epsilon >= gaussian_epsilon(math.sqrt(steps) / sigma, DELTA) * (1 - 1e-9)
    assert found.accountant == name
    assert found.basis == accountants()[name].bound_method((mechanism,)) != ""


@pytest.mark.parametrize("name", accountants())
def test_more_costs_more(name: str) -> None:
    base = Mechanism(Ranked(dim=6), Laplace(3.0), rate=0.1, steps=10)
    least = guarantee(base, DELTA, name).epsilon
    for more in (base.replace(steps=20), base.replace(rate=0.2), base.replace(noise=Laplace(2.0))):
        assert guarantee(more, DELTA, name).epsilon > least
    assert guarantee(base, DELTA / 10, name).epsilon > least


@pytest.mark.parametrize("name", accountants())
def test_a_ball_needs_a_noise_that_looks_the_same_from_all_sides(name: str) -> None:
    """A mechanism refuses any other already; an accountant does not rely on that."""
    ball = Mechanism(L2(dim=4), Gaussian(1.0), rate=1.0, steps=1)
    object.__setattr__(ball, "noise", Laplace(1.0))
    with refused(Unaccountable, f"{name} does not know the worst case"):
        accountant(name, (PLAIN, ball))


def test_who_else_could_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(accountants()["pld"]), "supports", lambda self, mechanism: False)
    with pytest.raises(Unaccountable) as error:
        guarantee(PLAIN, DELTA)
    assert error.value.hint == "choose one of rdp, rdp-classic"
    monkeypatch.setattr(Accountant, "supports", lambda self, mechanism: False)
    with pytest.raises(Unaccountable) as error:
        guarantee(PLAIN, DELTA)
    assert "use a noise" in error.value.hint


def test_unknown_names_are_refused() -> None:
    with refused(InvalidInput, "accountant is 'moments'"):
        guarantee(PLAIN, DELTA, "moments")
