"""What a guarantee says, what is refused, and the limits: a correct answer or a clear error, never NaN, no warning."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from noisette import Mechanism, Noise
from noisette.accounting import accountants, guarantee, guarantees
from noisette.accounting.account import check_delta, epsilon
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import HalfNormal, Tails
from noisette.errors import InvalidInput, NoisetteError, Unaccountable
from noisette.mechanism import mechanisms_hash
from noisette.noise import Cauchy, Gaussian, Laplace, ScipyNoise, StudentT
from tests.support.accounting_references import DELTA, gaussian_epsilon
from tests.support.helpers import refused

SMALL = HalfNormal(levels=4)
PLAIN = Mechanism(Ranked(dim=20, profiles=SMALL), StudentT(9, 1.0), rate=0.1, steps=10)


@pytest.mark.parametrize("accountant", accountants())
def test_fields(accountant: str) -> None:
    found = guarantee(PLAIN, DELTA, accountant)
    assert found.kind == "bound"
    assert found.accountant == accountant
    assert found.delta == DELTA
    assert found.mechanism_hash == PLAIN.hash == mechanisms_hash((PLAIN,))
    assert found.adjacency == "add/remove one example, Poisson sampling"
    assert found.basis == ("profile" if accountant == "pld" else "per-order maximum")
    assert json.loads(json.dumps(found.to_dict()))["epsilon"] == found.epsilon
    assert "estimate" not in str(found)


def test_the_default_is_the_tight_one() -> None:
    assert guarantee(PLAIN, DELTA) == guarantee(PLAIN, DELTA, "pld")


def test_estimates_say_so() -> None:
    """A law of scipy outside the reviewed list; and any run that has one in it."""
    unsure = PLAIN.replace(noise=ScipyNoise("t", 9, scale=1.0))
    assert not unsure.noise.certified
    found = guarantee(unsure, DELTA)
    assert found.kind == "estimate"
    assert "estimate" in str(found)
    assert found.epsilon == pytest.approx(guarantee(PLAIN, DELTA).epsilon, rel=1e-5), "the same law, after all"
    assert guarantee((PLAIN, unsure), DELTA).kind == "estimate"


def test_the_basis_of_a_run_names_each_part() -> None:
    several = PLAIN.replace(encoder=Ranked(dim=20, profiles=Tails(shapes=(2.0, 0.5), levels=3)))
    ball = PLAIN.replace(encoder=L2(dim=20), noise=Gaussian(2.0))
    found = guarantee((PLAIN, several, ball, PLAIN), DELTA)
    assert found.basis == "profile; pointwise maximum over profiles; L2 norm"
    assert found.mechanism_hash == mechanisms_hash((PLAIN, several, ball, PLAIN))
    assert found.mechanism_hash != mechanisms_hash((several, PLAIN, ball, PLAIN))


@pytest.mark.parametrize("delta", [False, 1, 1.0, 1.5, -1e-5, math.nan, math.inf, "1e-5", True])
def test_meaningless_deltas_are_refused(delta: object) -> None:
    with refused(InvalidInput, "delta"):
        guarantee(PLAIN, delta)


def test_delta_must_be_below_one_in_n() -> None:
    for delta in (1e-3, 2e-3, 0.5):
        with refused(InvalidInput, "one whole example"):
            guarantee(PLAIN, delta, examples=1000)
    assert guarantee(PLAIN, 0.999e-3, examples=1000).delta == 0.999e-3
    assert guarantee(PLAIN, 0.5).epsilon >= 0, "a size that is not known is not checked"


def test_unknown_accountants_and_open_scales_are_refused() -> None:
    with refused(InvalidInput, "accountant"):
        guarantee(PLAIN, DELTA, "moments")
    for accountant in accountants():
        with refused(InvalidInput, "no scale"):
            guarantee(PLAIN.replace(noise=StudentT(9)), DELTA, accountant)
        with refused(InvalidInput, "no dimension"):
            guarantee(PLAIN.replace(encoder=Ranked()), DELTA, accountant)


@pytest.mark.parametrize("accountant", accountants())
@pytest.mark.parametrize("micro_batch", [1, 4])
def test_clipping_of_an_open_dimension_is_accounted_for_any(accountant: str, micro_batch: int) -> None:
    left_open = Mechanism(L2(micro_batch=micro_batch), Gaussian(4.0), rate=0.01, steps=100)
    found = guarantee(left_open, DELTA, accountant)
    assert found.arithmetic == "covered"
    for dim in (1, 26010, 2**30):
        known = guarantee(left_open.replace(encoder=left_open.encoder.replace(dim=dim)), DELTA, accountant)
        assert known.epsilon * (1 - 1e-7) <= found.epsilon <= known.epsilon * 1.005
    with refused(Unaccountable, "worst case"):
        guarantee(left_open.replace(noise=StudentT(9, scale=4.0)), DELTA, accountant)


@pytest.mark.parametrize("accountant", accountants())
def test_no_steps_cost_nothing(accountant: str) -> None:
    none = PLAIN.replace(steps=0)
    assert guarantee(none, DELTA, accountant).epsilon == 0
    assert guarantee((none, none), DELTA, accountant).epsilon == 0
    assert guarantee((none, PLAIN), DELTA, accountant).epsilon == guarantee(PLAIN, DELTA, accountant).epsilon
    assert guarantee((), DELTA, accountant).epsilon == 0


def check_scale(scale: float, dim: int, rate: float, steps: int) -> None:
    """A finite epsilon, or an error that says the noise is too small; pytest turns warnings into errors."""
    for accountant in ("pld", "rdp"):
        for noise in (Gaussian(scale), Laplace(scale), StudentT(3, scale), Cauchy(scale)):
            mechanism = Mechanism(Ranked(dim=dim, profiles=SMALL), noise, rate, steps)
            try:
                found = guarantee(mechanism, DELTA, accountant).epsilon
            except Unaccountable:
                found = math.inf
            assert found > 0
            assert found < 1 or scale < 1 or (scale == 10 and steps == 50)  # where a Gaussian's is 2.94
            # fifty releases at scale 0.1 have a mean loss of 2500, which no float's exponential holds
            assert math.isfinite(found) or scale <= (0.01 if steps != 50 else 0.1), mechanism


@pytest.mark.parametrize(("scale", "dim"), [(1e-3, 1), (0.1, 1), (1e3, 1)])
def test_extreme_scales(scale: float, dim: int) -> None:
    check_scale(scale, dim, rate=1.0, steps=1)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-3, 1e-2, 0.1, 10.0, 100.0, 1e3])
@pytest.mark.parametrize("dim", [1, 30])
@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.01, 100), (1.0, 50)])
def test_extreme_scales_sampled(scale: float, dim: int, rate: float, steps: int) -> None:
    check_scale(scale, dim, rate, steps)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 1.0, 30.0, 1e3])
def test_gaussian_scales_have_the_known_answer(sigma: float) -> None:
    """Without sampling, from epsilon 300 down to 0.002."""
    found = guarantee(Mechanism(L2(dim=4), Gaussian(sigma), 1.0, 1), DELTA).epsilon
    truth = gaussian_epsilon(1 / sigma, DELTA)
    assert truth * (1 - 1e-9) <= found <= truth * 1.001


@pytest.mark.parametrize("noise", [Laplace(0.02), Laplace(100.0)], ids=repr)
def test_laplace_scales_have_the_known_answer(noise: Noise) -> None:
    """One coordinate: H = 1 - e^((eps - 1/scale) / 2), at epsilon 50 and 0.01."""
    found = guarantee(Mechanism(Ranked(dim=1), noise, 1.0, 1), DELTA).epsilon
    truth = 1 / noise.known_scale + 2 * math.log1p(-DELTA)
    assert truth * (1 - 1e-9) <= found <= truth * 1.0005


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 0.3])
def test_extreme_deltas(delta: float) -> None:
    found = guarantee(Mechanism(L2(dim=4), Gaussian(1.0), 1.0, 4), delta).epsilon
    truth = gaussian_epsilon(2.0, delta)
    assert truth * (1 - 1e-9) <= found <= truth * 1.002


SLOW_RATES = [pytest.param(*case, marks=pytest.mark.slow) for case in ((1e-6, 1000), (1e-4, 100_000))]


@pytest.mark.parametrize(("rate", "steps"), [(0.999, 3), (1e-9, 10), *SLOW_RATES])
def test_extreme_rates(rate: float, steps: int) -> None:
    for noise in (Gaussian(0.8), Cauchy(0.5)):
        for accountant in ("pld", "rdp"):
            mechanism = Mechanism(Ranked(dim=1), noise, rate, steps)
            assert 0 <= guarantee(mechanism, DELTA, accountant).epsilon < 40


@pytest.mark.slow
def test_rare_samples_of_a_small_noise() -> None:
    """A loss that is tiny but for one step in a million, where it is huge: a long lattice, and an answer."""
    found = guarantee(Mechanism(L2(dim=1), Gaussian(0.3), 1e-6, 1000), 1e-7).epsilon
    # by hand: the example is seen at most once but for (1e-3)^2 / 2, so the loss is that of one step of rate 1e-3
    once = guarantee(Mechanism(L2(dim=1), Gaussian(0.3), 1e-6, 1), 1e-10).epsilon
    assert found == pytest.approx(once, rel=0.15)


def test_ten_million_dimensions() -> None:
    found = guarantee(Mechanism(Ranked(dim=10_000_000), StudentT(9, 1.0), 256 / 60000, 14_062), DELTA).epsilon
    assert found == pytest.approx(2.3995, rel=2e-3)


def test_ten_million_steps() -> None:
    """Ten million steps at a rate of 1e-5: near a Gaussian of mu = rate sqrt(T (e^(1/sigma^2) - 1))."""
    sigma, rate, steps = 2.0, 1e-4, 10_000_000
    found = guarantee(Mechanism(L2(dim=1), Gaussian(sigma), rate, steps), DELTA).epsilon
    limit = gaussian_epsilon(rate * math.sqrt(steps * math.expm1(sigma**-2)), DELTA)
    assert found == pytest.approx(limit, rel=0.01)


def test_too_little_noise_is_a_clear_error() -> None:
    with refused(Unaccountable, "no finite epsilon"):
        guarantee(Mechanism(L2(dim=4), Gaussian(1e-3), 1.0, 5), DELTA)
    assert epsilon((Mechanism(L2(dim=4), Gaussian(1e-3), 1.0, 5),), DELTA) == math.inf


def test_an_unknown_worst_case_is_refused_before_accounting() -> None:
    with pytest.raises(NoisetteError):
        Mechanism(L2(dim=4), Laplace(1.0), 0.1, 5)


@pytest.mark.parametrize(
    "mechanism",
    [
        PLAIN.replace(steps=300),
        Mechanism(L2(dim=20), Gaussian(3.0), rate=1.0, steps=40),
        Mechanism(L2(dim=20), Gaussian(1.1), rate=0.004, steps=14062),
        Mechanism(Ranked(dim=20, profiles=SMALL), ScipyNoise("t", 9, scale=1.0), rate=0.1, steps=10),
    ],
    ids=lambda mechanism: f"{type(mechanism.noise).__name__} {mechanism.rate:g}",
)
def test_many_numbers_of_steps_at_once(mechanism: Mechanism) -> None:
    """Each is the guarantee of its own number of steps: to 5 parts in ten million, and in every digit that is shown."""
    counts = sorted({1, 2, mechanism.steps // 3, mechanism.steps})
    found = guarantees(mechanism, counts, DELTA)
    assert list(found) == counts
    for count, promise in found.items():
        alone = guarantee(mechanism.replace(steps=count), DELTA)
        assert promise.epsilon == pytest.approx(alone.epsilon, rel=5e-7)
        assert str(promise) == str(alone)
        same = {name: getattr(alone, name) for name in ("epsilon", "arithmetic_epsilon")}
        assert dataclasses.replace(promise, **same) == alone
        assert promise.arithmetic_epsilon == pytest.approx(alone.arithmetic_epsilon, rel=1e-3)


def test_many_numbers_of_steps_are_not_below_the_truth() -> None:
    """At rate 1 the composition of Gaussian releases is a Gaussian release, whose epsilon is known in closed form."""
    for count, promise in guarantees(Mechanism(L2(dim=1), Gaussian(20.0), 1.0, 400), [1, 7, 100, 400], DELTA).items():
        truth = gaussian_epsilon(math.sqrt(count) / 20.0, DELTA)
        assert truth <= promise.epsilon <= truth * 1.001


@pytest.mark.parametrize("examples", [3, 40, 150, 1437, 60_000])
def test_the_delta_of_the_hint_is_taken(examples: int) -> None:
    """1/40 is 0.025, and 0.03 would be refused with the hint to choose less than 0.03."""
    with refused(InvalidInput, match=f"at least 1/{examples}:") as caught:
        check_delta(1.08 / examples, examples)
    told = float(caught.value.hint.removeprefix("choose delta below "))
    assert 0.5 / examples <= told <= 1 / examples
    assert check_delta(math.nextafter(told, 0.0), examples) < told


def test_no_numbers_of_steps_and_bad_ones() -> None:
    assert guarantees(PLAIN, [], DELTA) == {}
    for steps in ([0], [-1], [1.5]):
        with refused(InvalidInput, match="steps is"):
            guarantees(PLAIN, steps, DELTA)
    with refused(InvalidInput, match="at least 1/100"):
        guarantees(PLAIN, [1], 0.01, examples=100)
    with refused(Unaccountable, match="no finite epsilon"):
        guarantees(PLAIN.replace(noise=StudentT(9, 1e-3)), [1, 10**6], 1e-12)
