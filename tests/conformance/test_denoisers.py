"""P12 for every registered denoiser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from noisette import Released
from noisette._spec import registered
from noisette.denoisers import KS, Denoiser, Kalman, LowPass, State, base
from tests.conformance.denoiser_checks import (
    DENOISER_CHECKS,
    check_arguments,
    check_bad_input,
    check_post_processing,
    check_result,
    check_state,
)

DENOISERS = [denoiser for kind in registered(Denoiser).values() for denoiser in kind.examples()]


def test_every_denoiser_is_here() -> None:
    """By name, so that a lost registration is noticed."""
    assert {
        "AndersonDarling",
        "Chain",
        "CramerVonMises",
        "Identity",
        "JamesStein",
        "KS",
        "Kalman",
        "LowPass",
        "Score",
        "Wasserstein",
    } <= set(registered(Denoiser))


@pytest.mark.parametrize("check", DENOISER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("denoiser", DENOISERS, ids=repr)
def test_denoiser(denoiser: Denoiser, check: Callable[[Denoiser], None]) -> None:
    check(denoiser)


# -- planted faults: each check above fails on the denoiser it is there for ----------------------------------------

Update = Callable[[Denoiser, Released, State], tuple[torch.Tensor, State]]


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Denoiser], Callable[[Update], Update]], None]:
    def spoil(kind: type[Denoiser], change: Callable[[Update], Update]) -> None:
        monkeypatch.setattr(kind, "_update", change(kind._update))

    return spoil


def test_a_changed_vector_is_caught(spoilt: Callable) -> None:
    spoilt(KS, lambda original: lambda self, released, state: (released.values.mul_(0.5), dict(state)))
    with pytest.raises(AssertionError, match="vector was changed"):
        check_arguments(KS())


def test_a_changed_state_is_caught(spoilt: Callable) -> None:
    def in_place(self: Kalman, released: Released, state: State) -> tuple[torch.Tensor, State]:
        state["step"] += 1
        return state["estimate"].lerp_(released.values, self.gain).clone(), dict(state)

    spoilt(Kalman, lambda original: in_place)
    with pytest.raises(AssertionError, match="state was changed"):
        check_arguments(Kalman())


def test_shared_memory_is_caught(spoilt: Callable) -> None:
    """A trainer that divides the result by the batch in place would divide the memory of the filter, too."""

    def shares(original: Update) -> Update:
        def update(self: Denoiser, released: Released, state: State) -> tuple[torch.Tensor, State]:
            _, following = original(self, released, state)
            return following["estimate"], following

        return update

    spoilt(Kalman, shares)
    with pytest.raises(AssertionError, match="shares memory"):
        check_arguments(Kalman())


def test_random_numbers_are_caught(spoilt: Callable) -> None:
    spoilt(KS, lambda original: lambda self, released, state: (released.values + torch.randn(40).double(), {}))
    with pytest.raises(AssertionError, match="random"):
        check_post_processing(KS())


def test_memory_beside_the_state_is_caught(spoilt: Callable) -> None:
    """A denoiser that remembers anywhere but in its state cannot be recomputed, or resumed."""
    seen: list[float] = []

    def remembers(self: Denoiser, released: Released, state: State) -> tuple[torch.Tensor, State]:
        seen.append(1.0)
        return released.values / len(seen), dict(state)

    spoilt(KS, lambda original: remembers)
    with pytest.raises(AssertionError, match="not a function of the releases"):
        check_post_processing(KS())
    with pytest.raises(AssertionError, match="resumed run differs"):
        check_state(KS())


def test_a_state_that_changes_shape_is_caught(spoilt: Callable) -> None:
    def grows(original: Update) -> Update:
        def update(self: Denoiser, released: Released, state: State) -> tuple[torch.Tensor, State]:
            values, following = original(self, released, state)
            return values, {**following, f"extra {int(state['step'])}": torch.zeros(1)}

        return update

    spoilt(LowPass, grows)
    with pytest.raises((AssertionError, ValueError), match="does not belong"):
        check_state(LowPass())


def test_a_wrong_result_is_caught(spoilt: Callable) -> None:
    for wrong in (lambda values: values.float(), lambda values: values[:-1], lambda values: values / 0):
        spoilt(KS, lambda original, wrong=wrong: lambda self, released, state: (wrong(released.values), dict(state)))
        with pytest.raises(AssertionError):
            check_result(KS())


def test_a_private_sum_let_in_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "check_released", lambda released: None)
    with pytest.raises((AssertionError, AttributeError)):
        check_bad_input(LowPass())
