"""One model for each kind of layer, and the loop of backward passes that all gradients are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette._gradients import PerExampleGradients, fused_clip
from noisette._gradients.chunk_policy import Plan
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import GradForm
from noisette._gradients.strategies import Strategy
from noisette._native.cpu import Kernel
from noisette._pytree import size
from noisette.errors import NoisetteError


def reference(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Gradients (B, dim), one ordinary backward pass for each example; leaves no grad behind."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(x)):
        model.zero_grad(set_to_none=True)
        loss(model(x[i : i + 1]), y[i : i + 1]).sum().backward()
        rows.append(torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]))
    model.zero_grad(set_to_none=True)
    return torch.stack(rows)


def all_rows(gradients: PerExampleGradients, x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([torch.empty(0, gradients.dim), *(rows.clone() for rows in gradients.chunks((x, y)))])


def encoded(kernel: Kernel, terms: Mapping[GradForm, int], count: int) -> Tensor:
    """The encoded sum, float64 (dim,), of the gradients of `count` examples: terms with the length of each."""
    layout = Layout(nn.ParameterList([torch.zeros(length) for length in terms.values()]))
    total = torch.zeros(layout.dim, dtype=torch.float64)
    fused_clip.add(kernel, list(terms), layout, count, count, total, most=256)
    return fused_clip.sum_in_order(list(terms), layout, total)


def paper_cnn() -> nn.Sequential:
    """The MNIST network of 26,010 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


class Then(nn.Module):
    """A layer, something done to its output, and a Linear head on the flat result."""

    def __init__(self, layer: nn.Module, size: int, after: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.layer, self.after, self.head = layer, after, nn.Linear(size, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.after(self.layer(x)).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, rnn: nn.Module, width: int = 4) -> None:
        super().__init__()
        self.rnn, self.head = rnn, nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Ruleless(nn.Linear):
    """A Linear layer by another name, for which there is no rule: alone, it goes through vmap."""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Tied(nn.Module):
    """An embedding whose table is also the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.table(x).mean(1)))


class Twice(nn.Module):
    """One layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Borrowed(nn.Module):
    """A weight that is used once by its layer and once more behind its back."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(torch.tanh(self.inner(x)), self.inner.weight.t()))


class BypassedOnly(nn.Module):
    """A layer whose call leads nowhere, while its weight is used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        return self.head(torch.tanh(F.linear(x, self.inner.weight, self.inner.bias)))


class Unused(nn.Module):
    """A trainable layer that never runs, and one that runs for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.never, self.idle, self.head = nn.Linear(6, 6), nn.Linear(6, 2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.idle(x)
        return self.head(x)


class Sorted(nn.Module):
    """Runs its layers on the batch in another order and puts it back: isolated, but rows are not examples inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x.flip(0))).flip(0))


class Viewed(nn.Module):
    """A CNN that flattens by `view`, which channels-last images do not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3), nn.Linear(4 * 5 * 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).view(len(x), -1))


class Residual(nn.Module):
    """Outputs used twice, activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x), inplace=True)
        return self.head((h + self.second(h)).mean((2, 3)))


class Branching(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.scale * (self.left(r) if r.sum() > 0 else self.right(r)) for r in x.split(1)])


class Flattened(nn.Module):
    """A Linear layer on all positions of all examples at once: vectors, but not one for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(6, 2), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x.reshape(-1, 6))).reshape(len(x), -1))


def _frozen(model: nn.Sequential, *names: str) -> nn.Sequential:
    for name in names:
        model.get_parameter(name).requires_grad_(False)
    return model


def _mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3)
    )


@dataclass(frozen=True)
class Case:
    """How to make a model, the shape of one example, and the path that it must take."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    path: str
    loss: nn.Module = field(default_factory=nn.CrossEntropyLoss)
    tokens: int = 0
    classes: int = 3

    def build(self, count: int = 7, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
        """The model in float64, inputs (count, *shape) and targets (count,)."""
        torch.manual_seed(seed)
        model = self.make().double()
        x = (
            torch.randint(self.tokens, (count, *self.shape))
            if self.tokens
            else torch.randn(count, *self.shape).double()
        )
        return model, x, torch.randint(self.classes, (count,))


CASES: dict[str, Case] = {
    "linear": Case(lambda: nn.Linear(6, 3), (6,), "layers"),
    "mlp": Case(_mlp, (6,), "layers"),
    "loss summed": Case(_mlp, (6,), "layers", nn.CrossEntropyLoss(reduction="sum")),
    "loss not reduced": Case(_mlp, (6,), "layers", nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)),
    "linear on sequences": Case(lambda: Then(nn.Linear(6, 4), 20), (5, 6), "layers"),
    "conv1d": Case(lambda: Then(nn.Conv1d(2, 3, 3, stride=2, padding=1), 12), (2, 8), "layers"),
    "conv2d": Case(lambda: Then(nn.Conv2d(2, 3, 3, stride=2), 27), (2, 7, 8), "layers"),
    "conv3d": Case(lambda: Then(nn.Conv3d(2, 3, 2), 36), (2, 3, 3, 4), "layers"),
    "conv2d, circular": Case(
        lambda: Then(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), 75), (2, 5, 5), "layers"
    ),
    "conv2d, viewed": Case(Viewed, (2, 7, 7), "layers"),
    "conv2d, residual": Case(Residual, (2, 6, 5), "layers"),
    "transposed conv2d": Case(lambda: Then(nn.ConvTranspose2d(2, 3, 2), 75), (2, 4, 4), "layers"),
    "embedding": Case(lambda: Then(nn.Embedding(9, 4), 20), (5,), "layers", tokens=9),
    "layer norm": Case(lambda: Then(nn.LayerNorm(6), 6), (6,), "layers"),
    "group norm": Case(lambda: Then(nn.GroupNorm(2, 4), 36), (4, 3, 3), "layers"),
    "batch norm in eval mode": Case(lambda: Then(nn.BatchNorm1d(6).eval(), 6), (6,), "layers"),
    "attention": Case(Attention, (5, 6), "layers"),
    "gru": Case(lambda: Recurrent(nn.GRU(3, 4, batch_first=True)), (5, 3), "layers"),
    "lstm": Case(lambda: Recurrent(nn.LSTM(3, 4, num_layers=2, batch_first=True)), (5, 3), "layers"),
    "tied": Case(Tied, (4,), "layers", tokens=7, classes=7),
    "one layer twice": Case(Twice, (6,), "layers"),
    "borrowed weight": Case(Borrowed, (6,), "layers"),
    "bypassed layer": Case(BypassedOnly, (6,), "layers"),
    "all positions at once": Case(Flattened, (5, 6), "layers"),
    "reordered batch": Case(Sorted, (6,), "layers"),
    "unused layers": Case(Unused, (6,), "layers"),
    "frozen weight": Case(lambda: _frozen(_mlp(), "0.weight", "4.bias"), (6,), "layers"),
    "frozen layer": Case(lambda: _frozen(_mlp(), "2.weight"), (6,), "layers"),
    "frozen conv": Case(lambda: _frozen(paper_cnn(), "0.weight", "0.bias"), (1, 28, 28), "layers", classes=10),
    "mnist-paper": Case(paper_cnn, (1, 28, 28), "layers", classes=10),
}

SLOW: dict[str, Case] = {
    "projected": Case(lambda: Recurrent(nn.LSTM(3, 4, proj_size=2, batch_first=True), 2), (5, 3), "loop"),
    "branching": Case(Branching, (6,), "loop"),
}


class AtItsWord:
    """In place of a planner: a model that nobody has tried takes the first way that its examples can go."""

    slow = culprit = inexact = None

    def __init__(self, gradients: PerExampleGradients) -> None:
        self._gradients = gradients
        self.first = Plan((*gradients._fast, *gradients._general)[0])

    def of(self, batch: Any) -> Plan:
        self.first = Plan(self._way(batch))
        return self.first

    def _way(self, batch: Any) -> Strategy:
        for way in (*self._gradients._fast, self._gradients._general[0]):
            try:
                way.rows(batch, torch.empty(size(batch), self._gradients.dim, dtype=torch.float64))
            except NoisetteError:
                raise
            except Exception:  # noqa: BLE001 - whatever a model raises
                continue
            return way
        return self._gradients._general[1]


def unchecked(gradients: PerExampleGradients) -> PerExampleGradients:
    """Gradients that take the model at its word: some of what tests bring shows on synthetic examples."""
    gradients._planner, gradients._trusted = AtItsWord(gradients), gradients._situation()
    return gradients
