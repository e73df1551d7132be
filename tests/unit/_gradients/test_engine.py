"""Chunks, buffers, dropout, what is left behind, and errors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from noisette import Mechanism, make_private
from noisette._gradients import PerExampleGradients
from noisette.denoisers import Kalman
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import Blocks
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.gradient_models import CASES, SLOW, Ruleless, all_rows, paper_cnn, reference
from tests.support.helpers import refused

LOSS = nn.CrossEntropyLoss()


def mlp_data(count: int = 7) -> tuple[nn.Module, Tensor, Tensor]:
    return CASES["mlp"].build(count)


@pytest.mark.parametrize("name", ["mlp", "conv2d", "layer norm"])
@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [4]), (5, [2, 3]), (8, [4, 4]), (11, [3, 4, 4])]
)
def test_chunks_are_few_and_of_equal_size(name: str, count: int, sizes: list[int]) -> None:
    model, x, y = CASES[name].build(count)
    gradients = PerExampleGradients(model, LOSS, chunk=4)
    rows = [chunk.clone() for chunk in gradients.chunks((x, y))]
    assert [chunk.shape for chunk in rows] == [(size, gradients.dim) for size in sizes]
    if count:
        torch.testing.assert_close(torch.cat(rows), reference(model, LOSS, x, y), rtol=1e-10, atol=1e-12)


def test_one_buffer_serves_all_chunks_and_calls() -> None:
    for name in ("mlp", "layer norm"):
        model, x, y = CASES[name].build(10)
        gradients = PerExampleGradients(model, LOSS, chunk=4)
        places = {chunk.data_ptr() for _ in range(3) for chunk in gradients.chunks((x, y))}
        assert len(places) == 1


def test_memory_is_set_by_the_chunk() -> None:
    """The largest tensor that any operation makes is no larger for a batch of 120 than for one of 24."""

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        bytes = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in given:
                    self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
            return result

    peaks = []
    for count in (24, 120):
        model, x, y = CASES["mnist-paper"].build(count)
        given = {x.untyped_storage().data_ptr(), y.untyped_storage().data_ptr()}
        gradients = PerExampleGradients(model, LOSS, chunk=8)
        with Largest() as largest:
            for _ in gradients.chunks((x, y)):
                pass
        peaks.append(largest.bytes)
    assert peaks[0] == peaks[1]


@pytest.mark.filterwarnings("ignore::noisette._gradients.Inexact")  # of chunks that fill no vector
@pytest.mark.parametrize("name", ["mlp", "mnist-paper", "tied", "attention"])
def test_nothing_is_left_behind(name: str) -> None:
    case = CASES[name]
    model, x, y = case.build()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    strides = [p.stride() for p in model.parameters()]
    kept = next(model.parameters())
    kept.grad = torch.ones_like(kept)
    inputs = x.clone()
    all_rows(PerExampleGradients(model, case.loss, chunk=3), x, y)
    assert torch.equal(x, inputs)
    assert torch.equal(kept.grad, torch.ones_like(kept))
    assert all(p.grad is None for p in model.parameters() if p is not kept)
    assert [p.stride() for p in model.parameters()] == strides
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks


def test_hooks_are_removed_after_an_error() -> None:
    model, x, y = mlp_data()
    gradients = PerExampleGradients(model, LOSS)
    all_rows(gradients, x, y)
    with refused(InvalidInput, match="fails on an example"):
        all_rows(gradients, x, y + 50)
    assert not any(module._forward_hooks for module in model.modules())
    assert gradients.path == "layers"  # an error of the caller's is no reason to become slow
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, LOSS, x, y))


@pytest.mark.parametrize("outer", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("name", ["mlp", "layer norm", "branching"])
@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
def test_grad_mode_outside_does_not_matter_and_is_kept(name: str, outer: type) -> None:
    case = {**CASES, **SLOW}[name]
    model, x, y = case.build()
    expected = reference(model, LOSS, x, y)
    gradients, rows = PerExampleGradients(model, LOSS, chunk=2), []
    with outer():
        mode = torch.is_grad_enabled()
        for chunk in gradients.chunks((x, y)):
            assert torch.is_grad_enabled() == mode
            assert not chunk.requires_grad
            rows.append(chunk.clone())
    assert gradients.path == case.path
    torch.testing.assert_close(torch.cat(rows), expected, rtol=1e-10, atol=1e-12)


class Counter(nn.Module):
    """Counts its calls in a buffer, on the way, once it is told to: the check refuses what does so from the start."""

    def __init__(self) -> None:
        super().__init__()
        self.counting = False
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.counting:
            self.calls += 1
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
@pytest.mark.parametrize(
    ("second", "path"),
    [
        (nn.Linear(6, 3), "layers"),
        (Ruleless(6, 3), "vmap"),
        (SLOW["branching"].make(), "loop"),
    ],
    ids=["layers", "vmap", "loop"],
)
def test_buffers_stay(second: nn.Module, path: str) -> None:
    model = nn.Sequential(Counter(), second).double()
    x, y = torch.randn(5, 6).double(), torch.randint(3, (5,))
    gradients = PerExampleGradients(model, LOSS)
    gradients.check((x, y))
    model[0].counting = True
    all_rows(gradients, x, y)
    assert gradients.path == path
    assert model[0].calls == 0
    assert torch.equal(model[0].mean, torch.zeros(6).double())


@pytest.mark.parametrize(("head", "path"), [(nn.Linear, "layers"), (Ruleless, "vmap")], ids=["layers", "vmap"])
def test_dropout_draws_for_each_example_anew(head: type[nn.Linear], path: str) -> None:
    """The head's gradient shows the mask. 200 examples of 40 units: pairs agree in 20 of 40 units, binomially.

    Of the 19,900 pairs none agrees in more than 38 units: P(Binomial(40, 1/2) >= 39) = 3.7e-11, so that this fails by
    chance with probability below 1e-6. The rate is 0.5 to 6 standard deviations, two-sided level 2e-9.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), head(40, 2))
    x, y = torch.ones(200, 40), torch.zeros(200, dtype=torch.long)
    gradients = PerExampleGradients(model, LOSS)
    rows = torch.cat([rows[:, -82:-42].clone() for rows in gradients.chunks((x, y))])
    assert gradients.path == path
    kept = (rows != 0).double()
    assert abs(float(kept.mean()) - 0.5) < 6 * 0.5 / math.sqrt(kept.numel())
    agree = kept @ kept.T + (1 - kept) @ (1 - kept).T
    agree.fill_diagonal_(0)
    assert agree.max() <= 38
    again = torch.cat([rows[:, -82:-42].clone() for rows in gradients.chunks((x, y))])
    assert float(((again != 0).double() == kept).double().mean()) < 0.6


def test_write_round_trip() -> None:
    model, x, y = CASES["frozen weight"].build()
    gradients = PerExampleGradients(model, LOSS)
    flat = all_rows(gradients, x, y).sum(0)
    gradients.write(flat)
    found = [p.grad.clone() for p in model.parameters() if p.requires_grad]
    assert torch.equal(torch.cat([g.flatten() for g in found]), flat)
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
    model.zero_grad()
    LOSS(model(x), y).mul(len(x)).backward()
    for p, g in zip(gradients.parameters, found, strict=True):
        torch.testing.assert_close(p.grad, g)
    gradients.write(flat)
    flat.zero_()
    assert gradients.parameters[0].grad.abs().max() > 0, "the vector is copied"


class Scaled(nn.Module):
    """A parameter without any dimension, as temperatures are, beside a table of blocks."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.layer, self.temperature, self.plain = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.3)), plain
        self.gates = nn.ParameterList([torch.tensor(1.0), torch.ones(3)])

    def forward(self, x: Tensor) -> Tensor:
        if not self.plain:
            float(x.sum())  # a number cannot be read under vmap
        out: Tensor = self.layer(x) * self.temperature.exp() * self.gates[0] + self.gates[1]
        return out


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
@pytest.mark.parametrize("path", ["layers", "vmap", "loop"])
def test_parameters_without_a_dimension(path: str) -> None:
    torch.manual_seed(0)
    model, x, y = Scaled(path != "loop"), torch.randn(9, 4), torch.randint(3, (9,))
    gradients, loss = PerExampleGradients(model, nn.CrossEntropyLoss()), nn.CrossEntropyLoss()
    gradients._fast = gradients._fast if path == "layers" else ()
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, loss, x, y))
    assert gradients.path == path
    assert gradients.exact
    for encoder in (L2(), Ranked(profiles=Blocks(dims=(12, 3, 1, 1, 3)))):
        made = Mechanism(encoder, Gaussian(scale=1.0), rate=0.5, steps=2)
        before = model.temperature.item()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in make_private(model, loss, (x, y), made, denoiser=Kalman()):
            optimizer.step()
        assert model.temperature.item() != before


def test_write_converts() -> None:
    model = paper_cnn().to(memory_format=torch.channels_last)
    gradients = PerExampleGradients(model, LOSS)
    flat = torch.randn(gradients.dim, dtype=torch.float64)
    gradients.write(flat)
    assert all(p.grad.dtype == torch.float32 and p.grad.stride() == p.stride() for p in gradients.parameters)
    assert torch.equal(torch.cat([p.grad.reshape(-1) for p in gradients.parameters]), flat.float())


def test_channels_last_models_give_the_same_rows() -> None:
    model, x, y = CASES["mnist-paper"].build()
    expected = reference(model, LOSS, x, y)
    rows = all_rows(PerExampleGradients(model.to(memory_format=torch.channels_last), LOSS), x, y)
    torch.testing.assert_close(rows, expected, rtol=1e-10, atol=1e-12)


def test_dtype_may_change_after_construction() -> None:
    model, x, y = mlp_data()
    gradients = PerExampleGradients(model.float(), LOSS)
    all_rows(gradients, x.float(), y)
    model.double()
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, LOSS, x, y), rtol=1e-10, atol=1e-12)


def test_what_has_no_meaning_is_refused() -> None:
    model, x, y = mlp_data()
    with refused(InvalidInput, match="no trainable parameter"):
        PerExampleGradients(model.requires_grad_(False), LOSS)
    model.requires_grad_(True)
    for chunk in (0, -1, 2.5):
        with refused(InvalidInput, match="chunk"):
            PerExampleGradients(model, LOSS, chunk=chunk)
    gradients = PerExampleGradients(model, LOSS)
    for inputs, targets in ((x, y[:3]), (x[0, 0], y), (x, y[0])):
        with refused(InvalidInput, match="not fit"):
            gradients.chunks((inputs, targets))
    for flat in (torch.zeros(gradients.dim + 1), torch.zeros(1, gradients.dim), torch.zeros(())):
        with refused(InvalidInput, match="does not fit"):
            gradients.write(flat)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of torch, while it loads its compiler
def test_compiled_models_are_refused_with_the_way_out() -> None:
    inner = nn.Sequential(nn.Linear(3, 2))
    inner[0].compile()
    for model in (torch.compile(nn.Linear(3, 2)), nn.Sequential(torch.compile(nn.Linear(3, 2))), inner):
        with refused(InvalidInput, match=r"was compiled.*\n\n.*give the module itself"):
            PerExampleGradients(model, LOSS)


def test_parameters_that_changed_are_refused() -> None:
    model, x, y = mlp_data()
    gradients = PerExampleGradients(model, LOSS)
    model[0].bias.requires_grad_(False)
    with refused(InvalidInput, match="others than at the start.*\n\nhint: .*before make_private"):
        gradients.chunks((x, y))
    model[0].bias.requires_grad_(True)
    gradients.chunks((x, y))
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    with refused(InvalidInput, match="others than at the start"):
        gradients.check((x, y))


def test_errors_of_the_model_come_through() -> None:
    model, x, y = mlp_data()
    with refused(InvalidInput, match="shapes cannot be multiplied") as caught:
        all_rows(PerExampleGradients(model, LOSS), x[:, :4], y)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_in_the_loop(reentrant: bool) -> None:
    """Where vmap cannot follow, what checkpointing would compute again is kept; torch refuses one kind there."""

    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head, self.kept = nn.Linear(4, 4), nn.Linear(4, 2), True

        def forward(self, x: Tensor) -> Tensor:
            h = self.inner(x) if self.kept else checkpoint(self.inner, x, use_reentrant=reentrant)
            return self.head(h if float(h.sum()) < 1e9 else -h)

    torch.manual_seed(0)
    model, batch = Reading(), (torch.randn(5, 4), torch.tensor([0, 1, 0, 1, 0]))
    found = []
    for kept in (True, False):
        model.kept = kept
        gradients = PerExampleGradients(model, LOSS)
        found.append(next(gradients.chunks(batch)).clone())
        assert gradients.path == "loop"
    assert torch.equal(*found)
