"""Mistakes in one's own loop are refused at once."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from noisette import Mechanism, PrivateRun, Trainer, check, fix, make_private
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.helpers import refused


def begun(model: nn.Module, steps: int = 5) -> PrivateRun:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(100, 4, generator=generator), torch.randint(2, (100,), generator=generator)
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.1, steps=steps)
    return make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism, seed=0)


def test_backward_in_the_loop_is_refused_and_leaves_nothing() -> None:
    model = nn.Linear(4, 2)
    private = begun(model)
    private.step()
    with refused(InvalidInput, match=r"backward\(\) has put a raw gradient"):
        model(torch.randn(3, 4)).sum().backward()
    assert any(p.grad is None for p in model.parameters())


def test_afterwards_and_without_the_run_the_model_is_the_users() -> None:
    finished, left = nn.Linear(4, 2), nn.Linear(4, 2)
    private = begun(finished)
    optimizer = torch.optim.SGD(finished.parameters(), lr=0.1)
    for _ in private:
        optimizer.step()
    begun(left)  # and forgotten
    for model in (finished, left):
        model(torch.randn(3, 4)).sum().backward()


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_backward_is_refused_in_the_last_turn_too(steps: int) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(InvalidInput, match=r"backward\(\) has put a raw gradient"):
        for step in begun(model, steps):
            if step == steps:
                model(torch.randn(3, 4)).sum().backward()
            optimizer.step()


def test_after_the_last_step_is_used_the_model_is_the_users() -> None:
    """Also where nobody asks for one turn more, at which a loop ends."""
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    private = begun(model, steps=4)
    for _ in range(4):
        private.step()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    with refused(InvalidInput, match=r"backward\(\) has put a raw gradient"):
        model(torch.randn(3, 4)).sum().backward()
    private.close()
    model(torch.randn(3, 4)).sum().backward()
    used = begun(other, steps=4)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(4):
        used.step()
        optimizer.step()
    other(torch.randn(3, 4)).sum().backward()


def test_by_hand_too() -> None:
    model = nn.Linear(4, 2)
    for _ in begun(model, steps=2):
        for p in model.parameters():
            p.data -= 0.1 * p.grad
    model(torch.randn(3, 4)).sum().backward()


def test_gradients_of_the_last_step_cleared_before_they_are_used_are_told_of() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(InvalidInput, match="cleared before an optimizer used them"):
        for _ in begun(model, steps=1):
            optimizer.zero_grad()
            optimizer.step()


def test_an_optimizer_of_another_model_is_told_of_at_once() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(copy.deepcopy(model).parameters(), lr=0.1)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    private = begun(model)
    with refused(InvalidInput, match="other parameters than those of the private run"):
        for _ in private:
            optimizer.step()
    assert private.num_updates == 1


def test_a_step_that_is_refused_for_its_random_numbers_is_not_paid_for() -> None:
    class Later(nn.Linear):
        draws = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (1.0 if not self.draws or random.random() >= 0 else 0.0)

    model = Later(4, 2)
    private = begun(model)
    model.draws = True
    with refused(InvalidInput, match="did not do when it was checked"):
        private.step()
    assert (private.steps_paid, private.num_updates) == (0, 0)
    model.draws = False
    private.step()
    assert private.num_updates == 1


def test_releases_may_be_taken_without_any_optimizer() -> None:
    assert list(begun(nn.Linear(4, 2))) == [1, 2, 3, 4, 5]


def test_a_copy_of_the_model_is_free() -> None:
    model = nn.Linear(4, 2)
    private = begun(model)
    copy.deepcopy(model)(torch.randn(3, 4)).sum().backward()
    assert private.steps_remaining == 5


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_cleared_before_they_are_used_are_told_of(to_none: bool) -> None:
    model = nn.Linear(4, 2)
    private = begun(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private.step()
    optimizer.zero_grad(set_to_none=to_none)
    optimizer.step()
    with refused(InvalidInput, match="cleared before an optimizer used them"):
        private.step()


def test_gradients_cleared_afterwards_are_fine() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in begun(model):
        optimizer.step()
        optimizer.zero_grad()
    by_hand = nn.Linear(4, 2)
    for _ in begun(by_hand):
        for p in by_hand.parameters():
            p.data -= 0.1 * p.grad
            p.grad = None


def test_a_schedule_that_begins_at_zero_is_fine() -> None:
    """Nothing moves in the first step, and yet an optimizer has used its gradients."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 3)
    other = nn.Linear(4, 2)
    private = begun(model)
    for _ in private:
        optimizer.step()
        warm_up.step()
        optimizer.zero_grad()
    lost = begun(other)
    lost.step()
    optimizer.step()  # of another model
    other.zero_grad()
    with refused(InvalidInput, match="cleared before an optimizer used them"):
        lost.step()


def moved(model: nn.Module, by: Callable[[], object]) -> bool:
    before = [p.detach().clone() for p in model.parameters()]
    by()
    return all(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("apart", [False, True], ids=["steps first, as an ensemble", "in turn, as a GAN"])
def test_runs_side_by_side(apart: bool) -> None:
    models = [nn.Linear(4, 2) for _ in range(3)]
    runs = [begun(model) for model in models]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for _ in range(5):
        for run in () if apart else runs:
            run.step()
        for run, model, optimizer in zip(runs, models, optimizers, strict=True):
            if apart:
                run.step()
            assert moved(model, optimizer.step)
    assert [run.steps_paid for run in runs] == [5, 5, 5]


def test_a_global_hook_of_the_user_is_called_at_every_step() -> None:
    seen: list[Optimizer] = []
    private = begun(model := nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private.step()
    hook = register_optimizer_step_pre_hook(lambda stepping, *_: seen.append(stepping))
    try:
        assert moved(model, optimizer.step)
        for _ in private:
            assert moved(model, optimizer.step)
    finally:
        hook.remove()
    assert seen == [optimizer] * 5


def test_a_run_that_nobody_holds_is_neither_kept_nor_in_the_way() -> None:
    kept, lost = nn.Linear(4, 2), nn.Linear(4, 2)
    private, forgotten = begun(kept), begun(lost)
    private.step()
    forgotten.step()
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    for model in (kept, lost):
        assert moved(model, torch.optim.SGD(model.parameters(), lr=0.1).step)
    lost(torch.randn(3, 4)).sum().backward()
    assert private.step() is not None


def test_side_by_side_a_mistake_is_still_told_of() -> None:
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    private, beside = begun(model), begun(other)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    private.step()
    beside.step()
    optimizer.step()
    model.zero_grad()
    with refused(InvalidInput, match="cleared before an optimizer used them"):
        private.step()
    assert beside.step() is not None


@pytest.mark.parametrize(("used", "paid"), [("00010001", 2), ("10001000", 3), ("01010101", 3), ("00000000", 2)])
def test_gradients_of_two_steps_that_nobody_used_are_told_of_before_the_next_is_paid(used: str, paid: int) -> None:
    model = nn.Linear(4, 2)
    private = begun(model, steps=len(used))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(InvalidInput, match="no optimizer has used the private gradients of two steps"):
        for step in private:
            if used[step - 1] == "1":
                optimizer.step()
    assert private.steps_paid == paid
    optimizer.step()
    private.step()
    assert private.steps_paid == paid + 1


def test_gradients_of_one_step_may_be_looked_at() -> None:
    model = nn.Linear(4, 2)
    private = begun(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private.step()
    for _ in private:
        optimizer.step()
    assert private.steps_paid == 5


def test_an_optimizer_over_other_parameters_is_refused() -> None:
    model, other = nn.Linear(4, 2), nn.Linear(4, 2)
    private = begun(model)
    for parameters in (other.parameters(), [model.weight], [*model.parameters(), *other.parameters()]):
        with refused(InvalidInput, match="over other parameters"):
            Trainer(private, torch.optim.SGD(parameters, lr=0.1))
    assert Trainer(private, torch.optim.SGD(model.parameters(), lr=0.1)).model is model


HOOKS: dict[str, Callable[[nn.Parameter], RemovableHandle]] = {
    "on a gradient": lambda weight: weight.register_hook(lambda gradient: gradient * 0),  # type: ignore[no-untyped-call]
    "behind it": lambda weight: weight.register_post_accumulate_grad_hook(lambda p: None),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_on_a_parameter_is_refused_by_name_whenever_it_comes(name: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    hook = HOOKS[name](model[1].weight)
    with refused(InvalidInput, match=r"'1\.weight' has a hook"):
        begun(model)
    with refused(InvalidInput, match=r"'1\.weight' has a hook"):
        fix(model)  # whose copy would have none
    (finding,) = check(model).findings
    assert (finding.layer, finding.verdict) == ("Parameter '1.weight'", "refused")
    hook.remove()
    private = begun(model)
    private.step()
    hook = HOOKS[name](model[1].weight)
    with refused(InvalidInput, match=r"'1\.weight' has a hook"):
        private.step()
    assert private.steps_paid == 1
    hook.remove()
    private.step()
    assert check(model).passed  # with the hooks of the run itself
    assert begun(model).step() is not None


def test_hooks_of_frozen_parameters_are_let_be_and_others_refused_whoever_is_drawn() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].weight.register_hook(lambda gradient: gradient * 0)
    model[0].requires_grad_(False)
    assert begun(model).step() is not None
    nobody = make_private(
        fresh := nn.Linear(4, 2),
        nn.MSELoss(),
        (torch.randn(4, 4), torch.randn(4, 2)),
        Mechanism(L2(), Gaussian(scale=1.0), rate=1e-9, steps=2),
    )
    fresh.weight.register_hook(lambda gradient: gradient * 0)
    with refused(InvalidInput, match="'weight' has a hook"):
        nobody.step()  # of no example: what is refused does not depend on who was drawn


def test_a_parameter_that_is_frozen_later_is_refused_whoever_is_drawn() -> None:
    model = nn.Linear(4, 2)
    data = torch.randn(4, 4), torch.randn(4, 2)
    nobody = make_private(model, nn.MSELoss(), data, Mechanism(L2(), Gaussian(scale=1.0), rate=1e-9, steps=2))
    model.bias.requires_grad_(False)
    with refused(InvalidInput, match="are others than at the start"):
        nobody.step()
    assert nobody.steps_paid == 0


def test_noise_does_not_move_the_row_of_the_padding() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4, padding_idx=2), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(x).mean(1))

    model = Bag()
    x, y = torch.randint(9, (50, 3)), torch.randint(2, (50,))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism):
        optimizer.step()
    assert torch.equal(model.table.weight[2], torch.zeros(4))
    assert model.table.weight[3].abs().sum() > 0


def test_a_label_out_of_range_is_not_told() -> None:
    x, y = torch.randn(20, 4), torch.full((20,), 6)
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=1.0, steps=1)
    with pytest.raises(InvalidInput) as caught:
        make_private(nn.Linear(4, 2), nn.CrossEntropyLoss(), (x, y), mechanism).step()
    assert "6" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
