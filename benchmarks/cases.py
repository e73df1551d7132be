"""What the steps are measured on: models with a batch each, and one step of ours, of plain SGD and of Opacus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette import Mechanism, make_private
from noisette.app.models.convolutional import cifar_cnn, mnist_cnn
from noisette.denoisers import KS
from noisette.encoders import L2, Ranked
from noisette.encoders.profiles import PaperGaussian
from noisette.noise import Gaussian, StudentT

__all__ = ["CASES", "Case", "Step", "opacus", "ours", "plain"]

Step = Callable[[], object]
LAST = torch.channels_last


class Attention(nn.Module):
    """Four heads, with a Linear layer each for queries, keys and values."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.causal = nn.Linear(width, width), causal

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = (layer(x).view(b, t, 4, w // 4).transpose(1, 2) for layer in (self.query, self.key, self.value))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(found.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a LayerNorm."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.first, self.second, self.attend = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, causal)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.first(x))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """Tokens to ten classes, or, as a language model, to the token that comes next, (B, vocabulary, T)."""

    def __init__(self, width: int, layers: int, vocabulary: int, tokens: int, *, language: bool = False) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width, language) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary if language else 10)
        self.language = language

    def forward(self, index: Tensor) -> Tensor:
        places = torch.arange(index.shape[1]).repeat(len(index), 1)  # one for each example, which Opacus needs
        x = self.norm(self.blocks(self.table(index) + self.places(places)))
        return self.head(x).transpose(1, 2) if self.language else self.head(x.mean(dim=1))


class Recurrent(nn.Module):
    """Tokens through an LSTM to ten classes."""

    def __init__(self, lstm: type[nn.Module] = nn.LSTM) -> None:
        super().__init__()
        self.table, self.lstm, self.head = nn.Embedding(1000, 128), lstm(128, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, index: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(index))[0][:, -1])


def adapted() -> nn.Module:
    """LoRA of rank 8 on the queries and values of model G."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(Transformer(256, 4, 5000, 128), LoraConfig(r=8, target_modules=["query", "value"]))


def recurrent_for_opacus() -> nn.Module:
    from opacus.layers import DPLSTM

    return Recurrent(DPLSTM)


@dataclass(frozen=True)
class Case:
    """A model, the shape of one example, and the size of a batch; `tokens` is a vocabulary, for which 0 says images."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    size: int
    tokens: int = 0
    theirs: Callable[[], nn.Module] | None = None
    next_token: bool = False

    def batch(self, size: int | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and targets, always the same."""
        generator, count = torch.Generator().manual_seed(0), size or self.size
        if not self.tokens:
            return torch.rand(count, *self.shape, generator=generator), torch.randint(10, (count,), generator=generator)
        x = torch.randint(self.tokens, (count, *self.shape), generator=generator)
        return x, x.roll(-1, 1) if self.next_token else torch.randint(10, (count,), generator=generator)


CASES: dict[str, Case] = {
    "M": Case(mnist_cnn, (1, 28, 28), 256),
    "C": Case(lambda: cifar_cnn(activation="tanh", width=32), (3, 32, 32), 64),
    "S": Case(lambda: Transformer(64, 2, 1000, 64), (64,), 32, 1000),
    "G": Case(lambda: Transformer(256, 4, 5000, 128), (128,), 16, 5000),
    "L": Case(adapted, (128,), 16, 5000),
    "R": Case(Recurrent, (64,), 32, 1000, recurrent_for_opacus),
    "big": Case(lambda: Transformer(512, 8, 24_000, 64, language=True), (64,), 8, 24_000, next_token=True),
}


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def plain(case: str, size: int | None = None, *, last: bool = False) -> Step:
    model, (x, y) = CASES[case].make(), CASES[case].batch(size)
    if last:
        model, x = model.to(memory_format=LAST), x.to(memory_format=LAST)
    optimizer = torch.optim.SGD(trained(model), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def ours(case: str, size: int | None = None, *, encoded: bool) -> Step:
    """Rate 1 on a data set of one batch, so that a step has exactly `size` examples."""
    model, (x, y) = CASES[case].make(), CASES[case].batch(size)
    dim = sum(p.numel() for p in trained(model))
    if encoded:
        profiles = PaperGaussian(n=1000) if dim < 100_000 else PaperGaussian(n=1000, levels=512)
        mechanism = Mechanism(Ranked(dim=dim, profiles=profiles), StudentT(df=9, scale=1.0), rate=1.0, steps=10**6)
    else:
        mechanism = Mechanism(L2(dim=dim), Gaussian(scale=1.1), rate=1.0, steps=10**6)
    private = make_private(model, nn.CrossEntropyLoss(), (x, y), mechanism, denoiser=KS() if encoded else None)
    optimizer = torch.optim.SGD(trained(model), lr=0.01)

    def step() -> None:
        private.step()
        optimizer.step()

    return step


def opacus(case: str, mode: str, size: int | None = None, *, last: bool = False) -> Step:
    """A full step of Opacus: per-example gradients, clipping, noise, update."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    inner, (x, y) = (CASES[case].theirs or CASES[case].make)(), CASES[case].batch(size)
    if last:
        inner, x = inner.to(memory_format=LAST), x.to(memory_format=LAST)
    sgd = torch.optim.SGD(trained(inner), lr=0.01)
    settings = {"noise_multiplier": 1.1, "max_grad_norm": 1.0, "expected_batch_size": len(x)}
    if mode == "ghost":
        model = GradSampleModuleFastGradientClipping(inner, max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(sgd, **settings)
        loss = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss(reduction="mean"), "mean")
    else:
        model = GradSampleModuleExpandedWeights(inner) if mode == "ew" else GradSampleModule(inner)
        optimizer, loss = DPOptimizer(sgd, **settings), nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        if CASES[case].next_token and mode == "ghost":  # which wants tokens in a row, and their number in an example
            loss(model(x).transpose(1, 2).flatten(0, 1), y.flatten(), shape=y.shape).backward()
        else:
            loss(model(x), y).backward()
        optimizer.step()

    return step
