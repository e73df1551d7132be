"""Every rule under a table of shapes and options, and what all of them are held to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import peft
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import GradForm, NormAndSumForm
from noisette._gradients.layer_strategy import Layers
from noisette._gradients.loss_adapter import adapt_loss
from noisette._gradients.state_guard import ModelTracer
from tests.support.gradient_models import reference

COUNT = 4


def bent(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss (B,) in which every output has a derivative of its own."""
    flat = outputs.flatten(1)
    return (torch.sin(flat) * torch.linspace(1, 2, flat.shape[1], dtype=flat.dtype)).sum(dim=1)


class On(nn.Module):
    """One layer, called in some way on what every example is."""

    def __init__(self, layer: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.layer, x)


def plain(layer: nn.Module, x: Tensor) -> Tensor:
    """An example is a batch of one."""
    return layer(x)


def many(layer: nn.Module, x: Tensor) -> Tensor:
    """An example (N, ...) is a batch of N."""
    return torch.unflatten(layer(x.flatten(0, 1)), 0, (len(x), -1))


def alone(layer: nn.Module, x: Tensor) -> Tensor:
    """An example has no dimension for a batch."""
    return layer(x.squeeze(0)).unsqueeze(0)


def recurrent(layer: nn.RNNBase, x: Tensor, *, given: bool = False, single: bool = False) -> Tensor:
    """Outputs and last states of a recurrent layer; a given first state follows from the example."""
    number = layer.num_layers * (2 if layer.bidirectional else 1)
    x = x if layer.batch_first or single else x.transpose(0, 1)
    state: Any = None
    if given:
        level = x.mean(-1).mean(1 if single or layer.batch_first else 0).reshape(1, -1, 1)
        state = level * torch.linspace(-1, 1, number, dtype=x.dtype).view(-1, 1, 1).expand(-1, 1, layer.hidden_size)
        state = (state, state * 0.5) if layer.mode == "LSTM" else state
    if single:
        x, state = x.squeeze(0), state if state is None else _changed(lambda part: part.squeeze(1), state)
    out, last = layer(x, state)
    lasts = list(last) if isinstance(last, tuple) else [last]
    if single:
        out, lasts = out.unsqueeze(0), [part.unsqueeze(1) for part in lasts]
    elif not layer.batch_first:
        out = out.transpose(0, 1)
    return torch.cat([out.flatten(1), *(part.transpose(0, 1).flatten(1) for part in lasts)], dim=1)


def _changed(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    return tuple(map(change, state)) if isinstance(state, tuple) else change(state)


def attention(layer: nn.MultiheadAttention, x: Tensor, *, mode: str = "") -> Tensor:
    """Self-attention unless the mode says "cross" or "three"; masks and weights as it says."""
    single = "single" in mode
    x = x.squeeze(0) if single else x if layer.batch_first else x.transpose(0, 1)
    time = 0 if single or not layer.batch_first else 1
    key = x.flip(time) * 2 if "cross" in mode or "three" in mode else x
    length, given = x.shape[time], dict[str, Any]()
    if "boolean" in mode:
        given["attn_mask"] = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    if "float" in mode:
        given["attn_mask"] = torch.linspace(-2, 2, length**2, dtype=x.dtype).view(length, length).sin()
    if "heads" in mode:
        size = (layer.num_heads, length, length)
        given["attn_mask"] = torch.linspace(-2, 2, layer.num_heads * length**2, dtype=x.dtype).view(size).sin()
    if "padding" in mode:
        ignored = torch.arange(length) >= length - 2
        if "heads" in mode:  # masks are of one type
            ignored = torch.zeros(length, dtype=x.dtype).masked_fill(ignored, -torch.inf)
        given["key_padding_mask"] = ignored if single else ignored.unsqueeze(0)
    if "unasked" in mode:
        given["need_weights"] = False
    if "apart" in mode:
        given["average_attn_weights"] = False
    out, weights = layer(x, key, key * 3 if "three" in mode else key, **given)
    out = out.unsqueeze(0) if single else out if layer.batch_first else out.transpose(0, 1)
    parts = [out] if weights is None else [out, weights.unsqueeze(0) if single else weights]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


MODES = (
    *("", "unasked", "cross", "three", "cross unasked", "boolean", "boolean unasked", "float", "heads"),
    *("heads unasked", "padding", "padding unasked", "cross padding", "heads padding apart", "single"),
    *("single padding boolean unasked", "single heads"),
)

Made = tuple[Callable[[], nn.Module], tuple[int, ...], int]
"""How a model is made, the shape of an example, and the number of tokens where it is made of these."""


def _on(layer: Callable[[], nn.Module], shape: tuple[int, ...], call: Any = plain, tokens: int = 0) -> Made:
    return lambda: On(layer(), call), shape, tokens


def _linear() -> Iterator[tuple[str, Made]]:
    for bias, (name, shape) in itertools.product(
        (True, False), {"a vector": (5,), "a sequence": (4, 5), "a table": (2, 3, 5), "one position": (1, 5)}.items()
    ):
        yield f"Linear, {name}, bias={bias}", _on(lambda bias=bias: nn.Linear(5, 3, bias=bias), shape)
    yield "Linear, alone", _on(lambda: nn.Linear(5, 3), (5,), alone)
    for shape in ((5,), (4, 5), (2, 3, 5)):
        yield f"Conv1D of transformers, {shape}", _on(lambda: Conv1D(3, 5), shape)


def adapted(base: nn.Module | None = None, *, trained: bool = False, **options: Any) -> Any:
    """A Linear layer, (5,) to (3,) unless it is given, with an adapter of peft, whose second half is not zero."""
    how = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["0"], **options)
    (layer,) = peft.inject_adapter_in_model(how, nn.Sequential(nn.Linear(5, 3) if base is None else base)).children()
    for name, parameter in layer.named_parameters():
        nn.init.normal_(parameter)
        parameter.requires_grad_(trained or "lora" in name)
    return layer


def _adapters() -> Iterator[tuple[str, Made]]:
    for trained, shape in itertools.product((True, False), ((5,), (4, 5), (2, 3, 5))):
        yield f"LoRA, {shape}, trained={trained}", _on(lambda trained=trained: adapted(trained=trained), shape)
    yield "LoRA, no bias", _on(lambda: adapted(nn.Linear(5, 3, bias=False), trained=True), (4, 5))
    for shape in ((5,), (4, 5)):
        on = lambda: adapted(Conv1D(3, 5), trained=True, fan_in_fan_out=True)  # noqa: E731
        yield f"LoRA on Conv1D of transformers, {shape}", _on(on, shape)
    # more weights than positions: products one after the other
    yield "LoRA, wide", _on(lambda: adapted(nn.Linear(40, 35), trained=True), (2, 40))
    yield "LoRA, scaled by the root", _on(lambda: adapted(use_rslora=True), (4, 5))


def _embedding() -> Iterator[tuple[str, Made]]:
    for padding, shape in itertools.product((None, 2, -1), ((), (6,), (3, 4))):
        table = lambda padding=padding: nn.Embedding(5, 3, padding_idx=padding)  # noqa: E731
        yield f"Embedding, {shape}, padding_idx={padding}", _on(table, shape, tokens=5)


def _norms() -> Iterator[tuple[str, Made]]:
    for options in ({}, {"bias": False}, {"elementwise_affine": True, "eps": 0.1}):
        for size, shape in ((6, (6,)), (6, (4, 6)), ((3, 6), (3, 6)), ((3, 6), (2, 3, 6)), (6, (2, 3, 6))):
            layer = lambda size=size, options=options: moved(nn.LayerNorm(size, **options))  # noqa: E731
            yield f"LayerNorm {size} on {shape}, {options}", _on(layer, shape)
    for size, shape in ((6, (6,)), (6, (4, 6)), ((3, 6), (2, 3, 6))):
        yield f"RMSNorm {size} on {shape}", _on(lambda size=size: moved(nn.RMSNorm(size, eps=0.01)), shape)
        yield f"RMSNorm {size} on {shape}, no eps", _on(lambda size=size: moved(nn.RMSNorm(size)), shape)
    for groups, shape in ((1, (4,)), (2, (4, 3)), (4, (4, 3, 2)), (2, (4, 2, 2, 3))):
        yield f"GroupNorm {groups} on {shape}", _on(lambda groups=groups: moved(nn.GroupNorm(groups, 4)), shape)
    yield "GroupNorm, many without space", _on(lambda: moved(nn.GroupNorm(1, 4)), (3, 4), many)
    for space, kind in enumerate((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), 1):
        layer = lambda kind=kind: moved(kind(3, affine=True))  # noqa: E731
        shape = (3, 4, 3, 2)[: space + 1]
        yield f"{kind.__name__}", _on(layer, shape)
        yield f"{kind.__name__}, alone", _on(layer, shape, alone)
        yield f"{kind.__name__}, many", _on(layer, (2, *shape), many)
    yield "GroupNorm, many", _on(lambda: moved(nn.GroupNorm(2, 4)), (3, 4, 3), many)


def moved(layer: Any) -> nn.Module:
    """A norm whose weights are not all one and biases not all zero."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, mean=0.5)
    return layer


CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
SIZE = (7, 6, 5)


def _convolutions() -> Iterator[tuple[str, Made]]:
    options: list[dict[str, Any]] = [
        {"kernel_size": 3},
        {"kernel_size": 1, "bias": False},
        {"kernel_size": 2, "stride": 2},
        {"kernel_size": 3, "padding": 2, "bias": False},
        {"kernel_size": 2, "dilation": 2, "padding": 1},
        {"kernel_size": 3, "groups": 2, "padding": 1},
        {"kernel_size": 2, "groups": 4, "stride": 3},
        {"kernel_size": 3, "padding": "same", "dilation": 2},
        {"kernel_size": 3, "padding": "valid"},
        *({"kernel_size": 3, "padding": 1, "padding_mode": mode} for mode in ("reflect", "replicate", "circular")),
        {"kernel_size": 3, "padding": "same", "padding_mode": "circular", "groups": 2},
    ]
    for space, some in itertools.product((1, 2, 3), options):
        layer = lambda space=space, some=some: CONV[space](4, 4, **some)  # noqa: E731
        yield f"{CONV[space].__name__}, {some}", _on(layer, (4, *SIZE[:space]))
    for space in (1, 2, 3):
        layer = lambda space=space: CONV[space](4, 3, 3, padding=1)  # noqa: E731
        yield f"{CONV[space].__name__}, alone", _on(layer, (4, *SIZE[:space]), alone)
        yield f"{CONV[space].__name__}, many", _on(layer, (3, 4, *SIZE[:space]), many)
        grouped = lambda space=space: CONV[space](4, 6, 2, groups=2, stride=2)  # noqa: E731
        yield f"{CONV[space].__name__}, many, in groups", _on(grouped, (3, 4, *SIZE[:space]), many)


def _recurrent() -> Iterator[tuple[str, Made]]:
    kinds: dict[str, Callable[..., nn.Module]] = {
        "LSTM": nn.LSTM,
        "GRU": nn.GRU,
        "RNN": nn.RNN,
        "RNN of relu": lambda *size, **how: nn.RNN(*size, nonlinearity="relu", **how),
    }
    table = [  # layers, both directions, bias, batch first, state given, alone
        (1, False, True, True, False, False),
        (1, False, False, True, False, False),
        (2, False, True, True, True, False),
        (1, True, True, True, False, False),
        (2, True, False, False, True, False),
        (1, False, True, False, False, False),
        (2, True, True, True, True, True),
        (1, False, True, False, False, True),
    ]
    for (name, kind), (layers, both, bias, first, given, single) in itertools.product(kinds.items(), table):
        how = {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": first}
        call = lambda layer, x, given=given, single=single: recurrent(layer, x, given=given, single=single)  # noqa: E731
        label = f"{name}, {layers} layers" + f", {both=}, {bias=}, {first=}, {given=}, {single=}"
        yield label, _on(lambda kind=kind, how=how: kind(2, 3, **how), (4, 2), call)


def _attention() -> Iterator[tuple[str, Made]]:
    for mode, (bias, first) in itertools.product(MODES, ((True, True), (False, True), (True, False))):
        layer = lambda bias=bias, first=first: moved(nn.MultiheadAttention(4, 2, bias=bias, batch_first=first))  # noqa: E731
        call = lambda layer, x, mode=mode: attention(layer, x, mode=mode)  # noqa: E731
        yield f"MultiheadAttention {mode!r}, {bias=}, {first=}", _on(layer, (5, 4), call)


CASES: dict[str, Made] = dict(
    itertools.chain(_linear(), _adapters(), _embedding(), _norms(), _convolutions(), _recurrent(), _attention())
)


def build(name: str, dtype: torch.dtype = torch.float64, count: int = COUNT) -> tuple[nn.Module, Tensor]:
    """The model of a case and examples (count, ...)."""
    make, shape, tokens = CASES[name]
    torch.manual_seed(0)
    model = make().to(dtype)
    x = torch.randint(tokens, (count, *shape)) if tokens else torch.randn(count, *shape, dtype=dtype)
    return model, x


def ways(model: nn.Module, goal: Any = bent) -> tuple[Layers, ...]:
    """The fast ways of a model."""
    return Layers.candidates(adapt_loss(model, goal), Layout(model), ModelTracer(model, goal))


def check(model: nn.Module, x: Tensor, *, copied: int = 0) -> None:
    """Rows are those of autograd, one example at a time; norms and weighted sums are those of the rows."""
    y = torch.zeros(len(x))
    expected = reference(model, bent, x, y)
    assert float(expected.abs().max()) > 1e-3
    layout = Layout(model)
    for way in ways(model):
        rows = torch.full_like(expected, torch.nan)
        way.rows((x, y), rows)
        torch.testing.assert_close(rows, expected, rtol=1e-10, atol=1e-12)
        assert len(way._copied) == copied
        for term, part in zip(way.terms((x, y)), layout.columns(expected), strict=True):
            check_term(term, part)


def check_term(term: GradForm, expected: Tensor) -> None:
    """All that a term tells against its rows (B, n)."""
    for some in (slice(None), slice(1, 3), slice(2, 2)):
        wanted = expected[some]
        found = term.rows(some, torch.full_like(wanted, torch.nan))
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    if isinstance(term, NormAndSumForm):
        wanted = expected.double()
        torch.testing.assert_close(term.square_norms(), wanted.square().sum(dim=1), rtol=1e-10, atol=1e-14)
        weights = torch.linspace(-1, 2, len(wanted), dtype=torch.float64)
        total = torch.ones(wanted.shape[1], dtype=torch.float64)
        term.add(weights, total, 2.0**-40)
        torch.testing.assert_close(total, 1 + weights @ wanted, rtol=1e-10, atol=1e-12)
