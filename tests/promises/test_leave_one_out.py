"""Leaving out any one example moves the sum by its own encoding, to the last bit, whatever the model is made of.

Widths are odd on purpose: rows of matrices then lie differently in memory, and vectors end in the midst of an example.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette import Encoder
from noisette._gradients import PerExampleGradients, SlowPath
from noisette._native import variant
from noisette._numerics import strict
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Tails

COUNT = 45
ENCODERS = [L2(radius=0.1), Ranked(profiles=Tails()), Snap()]

Made = tuple[nn.Module, nn.Module, Tensor, Tensor]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], width: int) -> None:
        super().__init__()
        self.rnn, self.out = kind(5, width, batch_first=True), nn.Linear(width, 3)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0][:, -1])


class Pooled(nn.Module):
    """Attention over time: one number a step, and a weighted mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside, self.score, self.out = nn.Linear(5, width), nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.tanh(self.inside(x))
        return self.out((inside * self.score(inside).softmax(dim=1)).sum(dim=1))


class Words(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(30, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.sigmoid(self.table(x)).mean(dim=1))


class Encoded(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(5, width), nn.Linear(width, 3)
        self.layer = nn.TransformerEncoderLayer(width, 2, 30, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.first(x)).mean(dim=1))


class Adapter(nn.Module):
    """A frozen layer beside a product of two thin ones, of which the second begins at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base, self.low, self.high = nn.Linear(20, width), nn.Linear(20, 3, bias=False), nn.Linear(3, width)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.high.weight)
        self.out = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.silu(self.base(x) + self.high(self.low(x))))


class Bare(nn.Module):
    """A matrix that belongs to no layer, so that no rule knows it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(20, width) * 0.3), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.softplus(x @ self.weight))


def _vectors(model: nn.Module, out: int = 3) -> Made:
    x = torch.randn(COUNT, 20)
    if out == 1:
        return model, nn.MSELoss(), x, torch.randn(COUNT, 1)
    return model, nn.CrossEntropyLoss(), x, torch.randint(3, (COUNT,))


def _sequences(model: nn.Module) -> Made:
    return model, nn.CrossEntropyLoss(), torch.randn(COUNT, 7, 5), torch.randint(3, (COUNT,))


def _tokens(model: nn.Module) -> Made:
    return model, nn.CrossEntropyLoss(), torch.randint(30, (COUNT, 9)), torch.randint(3, (COUNT,))


def _images(model: nn.Module) -> Made:
    return model, nn.CrossEntropyLoss(), torch.randn(COUNT, 2, 8, 8), torch.randint(3, (COUNT,))


def _mlp(width: int) -> Callable[[], Made]:
    return lambda: _vectors(nn.Sequential(nn.Linear(20, width), nn.Sigmoid(), nn.Linear(width, 3)))


def _deep(width: int) -> Callable[[], Made]:
    layers = [nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3)]
    return lambda: _vectors(nn.Sequential(*layers))


def _convolution() -> Made:
    layers = [nn.Conv2d(2, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3)]
    return _images(nn.Sequential(*layers))


def _normed() -> Made:
    first = [nn.Conv2d(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ELU()]
    return _images(nn.Sequential(*first, nn.Conv2d(8, 7, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(63, 3)))


def _depthwise() -> Made:
    layers = [nn.Conv2d(2, 6, 3, groups=2), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)]
    return _images(nn.Sequential(*layers))


def _over_time() -> Made:
    return _sequences(nn.Sequential(nn.Conv1d(7, 6, 3), nn.Mish(), nn.Flatten(), nn.Linear(18, 3)))


def _one_output() -> Made:
    return _vectors(nn.Sequential(nn.Linear(20, 15), nn.Sigmoid(), nn.Linear(15, 1), nn.Sigmoid()), out=1)


def _learned_slope() -> Made:
    return _vectors(nn.Sequential(nn.Linear(20, 22), nn.PReLU(), nn.LayerNorm(22), nn.GELU("tanh"), nn.Linear(22, 3)))


MODELS: dict[str, Callable[[], Made]] = {
    **{f"a network of width {width}": _mlp(width) for width in (10, 14, 18, 30, 50, 51, 102)},
    **{f"three layers of width {width}": _deep(width) for width in (17, 33)},
    "one output": _one_output,
    "regression": lambda: _vectors(nn.Linear(20, 1), out=1),
    "GRU": lambda: _sequences(Recurrent(nn.GRU, 18)),
    "LSTM": lambda: _sequences(Recurrent(nn.LSTM, 18)),
    "RNN": lambda: _sequences(Recurrent(nn.RNN, 15)),
    "attention pooling": lambda: _sequences(Pooled(14)),
    "transformer": lambda: _sequences(Encoded(18)),
    "embedding": lambda: _tokens(Words(18)),
    "adapter": lambda: _vectors(Adapter(18)),
    "a bare matrix": lambda: _vectors(Bare(18)),
    "convolution": _convolution,
    "group norm": _normed,
    "depthwise": _depthwise,
    "over time": _over_time,
    "layer norm": _learned_slope,
}
A_FEW = ["a network of width 18", "a network of width 51", "one output", "GRU", "attention pooling", "convolution"]


def moved(gradients: PerExampleGradients, encoder: Encoder, x: Tensor, y: Tensor, left_out: int) -> float:
    """How far leaving one example out moves the sum beside its own encoding, in radii."""
    others = torch.arange(len(x)) != left_out
    sums = [
        gradients.encoded_sum(encoder, (x[some], y[some])).unsafe_values()
        for some in (slice(None), others, slice(left_out, left_out + 1))
    ]
    return float((sums[0] - sums[1] - sums[2]).norm()) / encoder.radius


def largest_move(name: str, encoder: Encoder, left_out: range) -> tuple[float, PerExampleGradients]:
    torch.manual_seed(1)
    model, loss, x, y = MODELS[name]()
    gradients = PerExampleGradients(model, loss, exactly=encoder.jumps)
    encoder = encoder.replace(dim=gradients.dim)
    gradients.check((x[:1], y[:1]))
    return max(moved(gradients, encoder, x, y, one) for one in left_out), gradients


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_leaving_out_an_example_moves_the_sum_by_its_encoding(name: str, encoder: Encoder) -> None:
    found, gradients = largest_move(name, encoder, range(0, COUNT, 11))
    assert strict()
    assert (gradients.exact, gradients.path) == (True, "layers")
    # sums of rows are exact; those of products in float64 round, and clipping leaves them room
    assert found == 0 if encoder.jumps else found < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_leaving_out_any_example(name: str, encoder: Encoder) -> None:
    found, gradients = largest_move(name, encoder, range(COUNT))
    assert gradients.exact
    assert found == 0 if encoder.jumps else found < 1e-13


_ELSEWHERE = """
import sys, warnings
import torch
torch.set_num_threads(int(sys.argv[1]))
from tests.promises import test_leave_one_out as here
for name in sys.argv[3:]:
    for encoder in here.ENCODERS:
        found, gradients = here.largest_move(name, encoder, range(0, here.COUNT, int(sys.argv[2])))
        assert gradients.exact, name
        assert found == 0 if encoder.jumps else found < 1e-13, (name, encoder, found)
print("all exact")
"""


def elsewhere(threads: int, kernel: str, every: int, *names: str) -> str:
    """The same in a process of its own: with other threads, with another kernel."""
    given = {**os.environ, "OMP_NUM_THREADS": str(threads), "NOISETTE_KERNEL": kernel}
    command = [sys.executable, "-c", _ELSEWHERE, str(threads), str(every), *names]
    done = subprocess.run(
        command, env=given, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    return done.stdout.strip() or done.stderr


@pytest.mark.parametrize(("threads", "kernel"), [(2, ""), (1, "plain"), (1, "off")])
def test_on_more_threads_and_with_other_kernels(threads: int, kernel: str) -> None:
    assert elsewhere(threads, kernel, 22, *A_FEW) == "all exact"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", ["avx512", "avx2", "plain", "off"])
def test_all_on_more_threads_and_with_other_kernels(threads: int, kernel: str) -> None:
    if kernel == "avx512" and variant() != "avx512":
        kernel = ""  # the best that there is here
    assert elsewhere(threads, kernel, 4, *MODELS) == "all exact"


@pytest.mark.parametrize("name", ["a network of width 18", "GRU", "convolution", "a bare matrix"])
def test_where_examples_lie_in_memory_makes_no_difference(name: str) -> None:
    """A view begins where the examples in front of it end, and may lie column by column."""
    torch.manual_seed(1)
    model, loss, x, y = MODELS[name]()
    gradients = PerExampleGradients(model, loss, exactly=True)
    encoder = Snap(dim=gradients.dim)
    gradients.check((x[:1], y[:1]))
    usual = gradients.encoded_sum(encoder, (x, y)).unsafe_values()
    for shift in (1, 3, 5):
        elsewhere = torch.cat([torch.zeros(shift), x.flatten()])[shift:].view(x.shape)
        assert elsewhere.data_ptr() % 64
        assert torch.equal(gradients.encoded_sum(encoder, (elsewhere, y)).unsafe_values(), usual)
    by_columns = x.transpose(0, -1).contiguous().transpose(0, -1)
    assert not by_columns.is_contiguous()
    assert torch.equal(gradients.encoded_sum(encoder, (by_columns, y)).unsafe_values(), usual)


def test_threads_that_are_set_after_the_check_bring_another_check() -> None:
    torch.manual_seed(1)
    model, loss, x, y = MODELS["a network of width 51"]()
    gradients, before = PerExampleGradients(model, loss, exactly=True), torch.get_num_threads()
    gradients.check((x[:1], y[:1]))
    planner = gradients._planner
    try:
        torch.set_num_threads(3 - min(before, 2))
        assert moved(gradients, Snap(dim=gradients.dim), x, y, 7) == 0
    finally:
        torch.set_num_threads(before)
    assert gradients._planner is not planner


@contextmanager
def rounding_at(odd: Callable[[Tensor, int], Tensor]) -> Iterator[None]:
    """A layer whose outputs differ, in a last bit, at the places of a batch of some size that are `odd`."""
    honest = F.linear

    def linear(x: Tensor, *rest: Any) -> Tensor:
        places = odd(torch.arange(len(x)), len(x)).view(-1, *(1,) * (x.ndim - 1))
        return honest(x * (1 + places * 2.0**-20), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "linear", linear)
        yield


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
def test_only_sizes_without_an_end_are_used(encoder: Encoder) -> None:
    """Of whatever a layer has left over when it computes by fours."""
    torch.manual_seed(1)
    x, y = torch.randn(COUNT, 20), torch.randint(3, (COUNT,))
    with rounding_at(lambda place, count: place >= count - count % 4):
        gradients = PerExampleGradients(nn.Linear(20, 3), nn.CrossEntropyLoss(), exactly=encoder.jumps)
        gradients.check((x[:1], y[:1]))
        found = max(moved(gradients, encoder.replace(dim=gradients.dim), x, y, one) for one in (0, 7, 44))
    assert (gradients.exact, gradients.path) == (True, "layers")
    assert found == 0 if encoder.jumps else found < 1e-13


def test_what_cannot_be_shown_takes_the_loop_or_is_told_before_the_first_step() -> None:
    x, y = torch.randn(COUNT, 20), torch.randint(3, (COUNT,))
    with rounding_at(lambda place, count: place % 2):
        gradients = PerExampleGradients(nn.Linear(20, 3), nn.CrossEntropyLoss(), exactly=True)
        with pytest.warns(SlowPath, match="rounds by the place of an example"):
            gradients.check((x[:1], y[:1]))
        assert (gradients.exact, gradients.path) == (True, "loop")
        assert moved(gradients, Snap(dim=gradients.dim), x, y, 7) == 0
