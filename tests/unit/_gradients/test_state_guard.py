"""P3 by construction: what an example adds to the sum is its own, whatever the model tries, on every path."""

from __future__ import annotations

import functools
import logging
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from noisette._gradients import PerExampleGradients
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.objectives import per_example
from tests.support.gradient_models import all_rows, reference
from tests.support.gradient_models import unchecked as at_its_word
from tests.support.helpers import refused

pytestmark = pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
LOSS = nn.CrossEntropyLoss()


class Net(nn.Module):
    """Two Linear layers with something in between, which may keep things in the net."""

    shared = 0.0

    def __init__(self, between: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.between = nn.Linear(6, 6), nn.Linear(6, 3), between
        self.peak: object = 0.0
        self.seen: list[object] = []
        self.array, self.tensor, self.bytes = np.zeros(6), torch.zeros(6), bytearray(1)
        self.queue, self.slots, self.named, self.table = deque([0.0]), Slots(), Named(), {1: 0.0, "1": 0.0}

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self, torch.tanh(self.a(x)) * x))


class OwnRule(torch.autograd.Function):
    """Brings a way of its own to treat a batch, in which examples meet."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g

    @staticmethod
    def vmap(info, in_dims, x):
        return x - x.mean(0), 0


class MadeRule(torch.autograd.Function):
    """The identity, whose derivative is a mean over what it takes for a batch; torch makes its rule for vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g.mean(0).expand_as(g)


def sorted_and_put_back(net: Net, h: Tensor) -> Tensor:
    order = h[:, 0].argsort()
    return net.a(h[order])[order.argsort()]


def clipped_by_a_hook(net: Net, h: Tensor) -> Tensor:
    h.register_hook(lambda g: g / g.norm())
    return h


def scaled_for_the_backward_pass(net: Net, h: Tensor) -> Tensor:
    def pack(kept: Tensor) -> Tensor:
        return kept * (8 / kept.abs().max().clamp(min=8))

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        return h * h


class Halving(TorchDispatchMode):
    """Divides what is multiplied by the largest number in it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out / out.abs().max() if func is torch.ops.aten.mul.Tensor else out


def in_a_mode(net: Net, h: Tensor) -> Tensor:
    with Halving():
        return h * h


MIXING: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "over the largest, once it is large": lambda net, h: h / h.abs().max().clamp(min=4),
    "dropped features become the batch mean": lambda net, h: torch.where(h < -0.5, h.mean(0), h),
    "a guard against NaN": lambda net, h: torch.zeros_like(h) if h.isnan().any() else h,
    "centred in batches above 8": lambda net, h: h - h.mean(0) if len(h) > 8 else h,
    "a hook that clips by the norm of the batch": clipped_by_a_hook,
    "a rule for batches of its own": lambda net, h: OwnRule.apply(h),
    "a derivative that is a mean": lambda net, h: MadeRule.apply(h),
    "scaled for the backward pass by the largest": scaled_for_the_backward_pass,
    "a dispatch mode": in_a_mode,
    "more than eight": lambda net, h: h * (1 + (len(h) > 8)),
}


def batch(count: int = 40) -> tuple[Tensor, Tensor]:
    """Large and small examples, one with a NaN: what four examples in [0, 1) do not show."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 6, generator=generator).double() * torch.logspace(-2, 2, count)[:, None].double()
    x[7, 3] = torch.nan
    return x, torch.randint(3, (count,), generator=generator)


def moved_by_one(gradients: PerExampleGradients, x: Tensor, y: Tensor, one: int) -> float:
    encoder = L2(dim=gradients.dim)
    others = [i for i in range(len(x)) if i != one]
    full = gradients.encoded_sum(encoder, (x, y)).unsafe_values()
    return float((full - gradients.encoded_sum(encoder, (x[others], y[others])).unsafe_values()).norm())


def unchecked(model: nn.Module, loss: Any = LOSS, chunk: int = 64) -> PerExampleGradients:
    """Gradients that take the model at its word: some of these show on made-up examples, and would be refused."""
    return at_its_word(PerExampleGradients(model, loss, chunk=chunk))


@pytest.mark.parametrize("chunk", [5, 64])
@pytest.mark.parametrize("name", MIXING)
def test_one_example_moves_the_sum_by_its_own_encoding(name: str, chunk: int) -> None:
    """Radius 1, whatever the model does to a batch: unlike a batch as it is, where these move it by up to 40."""
    torch.manual_seed(0)
    model, (x, y) = Net(MIXING[name]).double(), batch()
    gradients = unchecked(model, chunk=chunk)
    assert max(moved_by_one(gradients, x, y, one) for one in (0, 7, 20, 39)) <= 1 + 1e-9


def test_mixup_has_nobody_to_mix_with() -> None:
    def mixup(net: Net, h: Tensor) -> Tensor:
        return h + h.roll(1, 0) if bool(torch.rand(()) < 0.3) else h

    torch.manual_seed(0)
    model, (x, y) = Net(mixup).double(), batch()
    rows = all_rows(unchecked(model, chunk=5), x, y)
    plain, doubled = Net(lambda net, h: h).double(), Net(lambda net, h: 2 * h).double()
    alone = []
    for one in (plain, doubled):
        one.load_state_dict(model.state_dict())
        alone.append(reference(one, LOSS, x, y))
    fits = [torch.isclose(rows, each, equal_nan=True).all(1) for each in alone]
    assert (fits[0] | fits[1]).all()
    assert fits[0].any()
    assert fits[1].any()


OWN = {
    "random": lambda net: random.random(),
    "numpy.random": lambda net: np.random.random_sample(),  # noqa: NPY002
    "Net.rolls": lambda net: net.rolls.random(),
    "Net.old": lambda net: net.old.rand(),
    "Net.dice": lambda net: net.dice["one"].random(),
    "Net.theirs": lambda net: float(torch.rand((), generator=net.theirs)),
    "a torch.Generator": lambda net: torch.rand((), generator=torch.Generator().manual_seed(0)),
}


@pytest.mark.parametrize("path", ["layers", "vmap", "loop"])
@pytest.mark.parametrize("source", OWN)
def test_random_numbers_that_are_not_of_torch_are_refused(source: str, path: str) -> None:
    """One number for a chunk tells how many chunks there are; known ones shift by one with every example."""

    def drop(net: Any, h: Tensor) -> Tensor:
        if path == "loop":
            float(h.sum())  # a number cannot be read under vmap
        return h * (OWN[source](net) >= 0.0)

    def model() -> Net:
        made: Any = Net(drop).double()
        made.rolls, made.old = np.random.default_rng(0), np.random.RandomState(0)
        made.dice, made.theirs = {"one": random.Random(0)}, torch.Generator().manual_seed(0)
        return made

    told = "a torch.Generator" if source == "Net.theirs" else source
    match = f"draws random numbers from {told}"
    gradients = unchecked(model())
    gradients._fast = gradients._fast if path == "layers" else ()
    with refused(InvalidInput, match=match):
        all_rows(gradients, *batch())
    with refused(InvalidInput, match=match):
        PerExampleGradients(model(), LOSS).check(batch())


def test_draws_between_calls_are_nobodys_business() -> None:
    gradients = unchecked(Net(lambda net, h: h).double(), chunk=5)
    for _ in gradients.chunks(batch()):
        random.random()
        np.random.random_sample()  # noqa: NPY002


class Aside(nn.Module):
    """Takes a weight from a list of its own, which torch does not look into."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.weights = [self.layer.weight]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(x, self.weights[0]))


@pytest.mark.parametrize("fast", [True, False])
def test_parameters_that_no_gradient_would_reach_are_refused(fast: bool) -> None:
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    model = nn.Linear(4, 3)
    kept = list(model.parameters())

    def penalty(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) + sum(p.square().sum() for p in kept)

    for gradients in (unchecked(Aside()), unchecked(model, penalty)):
        gradients._fast = gradients._fast if fast else ()
        with refused(InvalidInput, match="has not taken from its module"):
            all_rows(gradients, x, y)
    with refused(InvalidInput, match="has not taken from its module"):
        PerExampleGradients(Aside(), LOSS).check((x, y))


def test_asking_for_the_form_of_such_a_parameter_is_fine() -> None:
    class Looks(Aside):
        def forward(self, x: Tensor) -> Tensor:
            width = self.weights[0].shape[0] + self.weights[0].size(0) - self.weights[0].numel() // 4
            return self.head(self.layer(x.to(self.weights[0].device, self.weights[0].dtype))[..., :width])

    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    model = Looks()
    torch.testing.assert_close(all_rows(PerExampleGradients(model, LOSS), x, y), reference(model, LOSS, x, y))


def test_parameters_that_are_asked_for_in_the_call_are_followed() -> None:
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    model = nn.Linear(4, 3)

    def penalty(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) + sum(p.square().sum() for p in model.parameters())

    torch.testing.assert_close(all_rows(PerExampleGradients(model, penalty), x, y), reference(model, penalty, x, y))


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Parameter(torch.eye(3))

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(outputs @ self.centres, targets)

    head, model = Head(), nn.Linear(4, 3)
    for goal in (head, lambda outputs, targets: 2 * head(outputs, targets)):
        with refused(InvalidInput, match="Head has parameters that are no part of the model"):
            PerExampleGradients(model, goal)
    head.requires_grad_(False)
    PerExampleGradients(model, head).check((torch.randn(8, 4), torch.randint(3, (8,))))


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_tables_that_shorten_their_rows_are_refused_and_left_as_they_are(layer: type[nn.Module]) -> None:
    model = nn.Sequential(layer(9, 6, max_norm=0.5), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 2, dtype=torch.long))
    before = model[0].weight.detach().clone()
    with refused(InvalidInput, match="changes the weights that its examples look up"):
        PerExampleGradients(model, LOSS).check((torch.ones(8, 2, dtype=torch.long), torch.randint(3, (8,))))
    assert torch.equal(model[0].weight, before)


def test_rows_that_are_sorted_and_put_back_are_those_of_their_examples() -> None:
    class Sorting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            order = x[:, 0].argsort()
            return self.b(torch.tanh(self.a(x[order])[order.argsort()]))

    torch.manual_seed(0)
    model, (x, y) = Sorting().double(), batch()
    x = x.nan_to_num()
    gradients = PerExampleGradients(model, LOSS)
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, LOSS, x, y))
    assert gradients.path == "layers"
    assert max(moved_by_one(gradients, x, y, one) for one in range(40)) <= 1 + 1e-9


@pytest.mark.parametrize("name", MIXING)
def test_rows_are_those_of_examples_alone(name: str) -> None:
    torch.manual_seed(0)
    model, (x, y) = Net(MIXING[name]).double(), batch()
    gradients = unchecked(model, chunk=16)
    torch.testing.assert_close(all_rows(gradients, x, y), reference(model, LOSS, x, y), equal_nan=True)


# -- what outlives a call ------------------------------------------------------------------------------------------


def running_maximum(net: Net, h: Tensor) -> Tensor:
    net.peak = torch.maximum(torch.as_tensor(net.peak), h.detach().abs().max())
    return h / net.peak


def running_number(net: Net, h: Tensor) -> Tensor:
    net.peak = max(net.peak, float(h.detach().abs().max()))
    return h / net.peak


def in_a_list(net: Net, h: Tensor) -> Tensor:
    net.seen.append(float(h.detach().abs().max()))
    return h / max(net.seen)


def in_an_array(net: Net, h: Tensor) -> Tensor:
    net.array[0] = max(net.array[0], float(h.detach().abs().max()))
    return h / net.array[0]


def in_place(net: Net, h: Tensor) -> Tensor:
    net.tensor.copy_(torch.maximum(net.tensor, h.detach().abs().max()))
    return h + net.tensor


def through_data(net: Net, h: Tensor) -> Tensor:
    net.tensor.data[0] = float(h.detach().abs().max()) if h.sum() > 0 else h.detach().max()
    return h / (1 + net.tensor)


def counted(net: Net, h: Tensor) -> Tensor:
    net.peak += 1
    return h / net.peak


class Slots:
    """Keeps a number where there is no ``__dict__``."""

    __slots__ = ("peak",)

    def __init__(self) -> None:
        self.peak = 0.0


class Named(list):
    """A list that can keep a number beside its entries."""


def keeping(write: Callable[[Net, float], None], read: Callable[[Net], float]) -> Callable[[Net, Tensor], Tensor]:
    """A running maximum, kept wherever `write` puts it."""

    def between(net: Net, h: Tensor) -> Tensor:
        write(net, max(read(net), float(h.detach().abs().max())))
        return h / (1 + read(net))

    return between


def toggled(net: Net, h: Tensor) -> Tensor:
    h = h if net.b.training else -h
    net.b.train(bool(h.detach().abs().max() > 1))
    return h


STATE: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "a running maximum, as a tensor": running_maximum,
    "a running maximum, as a number": running_number,
    "in a list": in_a_list,
    "in an array": in_an_array,
    "in place": in_place,
    "behind the back of autograd": through_data,
    "the number of calls": counted,
    "in a deque": keeping(lambda net, v: net.queue.append(v), lambda net: max(net.queue, default=0.0)),
    "in slots": keeping(lambda net, v: setattr(net.slots, "peak", v), lambda net: net.slots.peak),
    "in a bytearray": keeping(lambda net, v: net.bytes.__setitem__(0, min(255, int(v))), lambda net: net.bytes[0]),
    "beside the entries of a list": keeping(
        lambda net, v: setattr(net.named, "peak", v), lambda net: getattr(net.named, "peak", 0.0)
    ),
    "in a dict": keeping(lambda net, v: net.table.update({"1": v}), lambda net: net.table["1"]),
    "in a tensor, as a number": keeping(lambda net, v: net.tensor.data.fill_(v), lambda net: float(net.tensor[0])),
    "in a tensor, by numpy": keeping(lambda net, v: net.tensor.numpy().fill(v), lambda net: float(net.tensor[0])),
    "in the class": keeping(lambda net, v: setattr(Net, "shared", v), lambda net: Net.shared),
    "in the mode of a layer": toggled,
}


@pytest.mark.parametrize("name", STATE)
def test_what_outlives_a_call_is_refused(name: str) -> None:
    torch.manual_seed(0)
    model, (x, y) = Net(STATE[name]).double(), batch()
    x = x.nan_to_num()
    with refused(InvalidInput, match=r"keeps (len\()?(Net\.\w+|Linear 'b'\.training)|earlier call"):
        all_rows(unchecked(model, chunk=4), x, y)


def test_a_key_made_of_an_example_is_not_told() -> None:
    def keyed(net: Net, h: Tensor) -> Tensor:
        net.table[f"patient {float(h.detach().max()):.3f}"] = 1.0
        return h

    x, y = batch()
    with pytest.raises(InvalidInput) as caught:
        all_rows(unchecked(Net(keyed).double(), chunk=4), x.nan_to_num(), y)
    assert "Net.table" in str(caught.value)
    assert "patient" not in str(caught.value)


def test_what_a_loss_keeps_is_refused_too() -> None:
    class Relative(nn.Module):
        """A loss over the mean of those it has seen."""

        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.ones(())

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            loss = F.cross_entropy(outputs, targets)
            self.mean = 0.9 * self.mean + 0.1 * loss.detach()
            return loss / self.mean

    x, y = batch()
    with refused(InvalidInput, match="earlier call|keeps Relative"):
        all_rows(unchecked(nn.Linear(6, 3).double(), Relative(), chunk=4), x, y)


def test_what_a_loss_that_is_no_module_keeps_is_refused_too() -> None:
    class Relative:
        def __init__(self) -> None:
            self.peak = 0.0

        def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
            loss = F.cross_entropy(outputs, targets)
            self.peak = max(self.peak, float(loss))
            return loss / self.peak

    x, y = batch()
    with refused(InvalidInput, match=r"keeps the loss\.peak"):
        all_rows(unchecked(nn.Linear(6, 3).double(), Relative(), chunk=4), x.nan_to_num(), y)


def test_a_tensor_outside_the_model_that_an_earlier_call_has_made_is_refused() -> None:
    kept: list[Tensor] = []

    def in_a_closure(net: Net, h: Tensor) -> Tensor:
        kept.append(h.detach().abs().max())
        return h / torch.stack(kept[-2:]).max()

    x, y = batch()
    with refused(InvalidInput, match="earlier call"):
        all_rows(unchecked(Net(in_a_closure).double(), chunk=4), x, y)


def test_parameters_that_an_example_writes_to_are_copies() -> None:
    """Initialisation by the first batch, as some normalising layers have it, would put raw data into the weights."""

    def initialise(net: Net, h: Tensor) -> Tensor:
        if h.detach().abs().max() > 0:
            net.b.weight.data.mul_(1 + h.detach().abs().max())
        return h

    torch.manual_seed(0)
    model, (x, y) = Net(initialise).double(), batch()
    before = [p.detach().clone() for p in model.parameters()]
    gradients = unchecked(model)
    all_rows(gradients, x.nan_to_num(), y)
    assert gradients.path == "loop"
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_frozen_weights_that_an_example_writes_to_are_copies() -> None:
    """An embedding that keeps its rows short writes to them: which rows are short would tell which tokens occurred."""

    class Short(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Parameter(torch.randn(9, 6), requires_grad=False), nn.Linear(6, 3)
            self.peak = nn.Parameter(torch.zeros(()), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            h = F.embedding(x, self.table, max_norm=0.5).mean(1)
            with torch.no_grad():
                self.peak.fill_(max(float(self.peak), float(h.abs().max())))
            return self.head(h * (1 + self.peak))

    torch.manual_seed(0)
    model = Short().double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    x, y = torch.randint(9, (8, 3)), torch.randint(3, (8,))
    rows = all_rows(unchecked(model), x, y)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    torch.testing.assert_close(rows, all_rows(unchecked(model), x.flip(0), y.flip(0)).flip(0))


@pytest.mark.parametrize("path", ["layers", "vmap", "loop"])
def test_what_is_kept_but_never_used_again_passes(path: str) -> None:
    """Activations kept to be looked at, a table made once, a weight that is computed anew in every call."""

    def keep(net: Net, h: Tensor) -> Tensor:
        net.peak = h
        if len(net.seen) == 0:
            net.seen.append(torch.arange(6.0).double())
        h = h * net.seen[0] + net.peak
        if path == "loop" and h.abs().sum() > 0:
            h = h * 2
        return F.layer_norm(h, (6,)) if path == "vmap" else h

    torch.manual_seed(0)
    model, (x, y) = Net(keep).double(), batch()
    if path == "vmap":
        with pytest.warns(FutureWarning, match="weight_norm"):
            nn.utils.weight_norm(model.a)
    gradients = PerExampleGradients(model, LOSS, chunk=4)
    rows = all_rows(gradients, x, y)
    model.seen.clear()
    torch.testing.assert_close(rows, reference(model, LOSS, x, y), equal_nan=True)
    assert gradients.path == path


def test_loggers_paths_and_files_pass(tmp_path: Path) -> None:
    """They fill caches of their own while they are used."""

    def telling(net: Net, h: Tensor) -> Tensor:
        net.logger.debug("%s", str(net.folder / "x"))
        return h * 2 if h.sum() > 0 else h  # so that it goes through the loop

    model, (x, y) = Net(telling).double(), batch()
    model.logger, model.folder = logging.getLogger("noisette.test"), tmp_path
    gradients = unchecked(model)
    all_rows(gradients, x, y)
    assert gradients.path == "loop"


def test_what_the_loop_of_training_changes_passes() -> None:
    """A temperature that is set between steps is public, and no state of a call."""

    def tempered(net: Net, h: Tensor) -> Tensor:
        return h * net.peak

    model, (x, y) = Net(tempered).double(), batch()
    gradients = PerExampleGradients(model, LOSS)
    for temperature in (1.0, 0.5):
        model.peak = temperature
        torch.testing.assert_close(all_rows(gradients, x, y), reference(model, LOSS, x, y), equal_nan=True)


REACHES = {
    "_base": lambda x: x if x._base is None else x._base,
    "as_strided": lambda x: x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0),
}


@pytest.mark.parametrize("way", REACHES)
def test_memory_of_others_is_out_of_reach(way: str) -> None:
    """In the loop too, a model is given one example, and no view of all."""

    def largest(net: Net, h: Tensor) -> Tensor:
        return h * 2 if float(h.detach().sum()) > 1e9 else h  # so that it goes through the loop

    class Reaching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(largest)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x / REACHES[way](x).abs().max().clamp(min=1))

    torch.manual_seed(0)
    model, (x, y) = Reaching().double(), batch()
    gradients = unchecked(model)
    single = torch.cat([all_rows(gradients, x[i : i + 1].clone(), y[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(all_rows(gradients, x, y), single, equal_nan=True)
    assert gradients.path == "loop"


def test_a_text_form_shows_one_example() -> None:
    """Under vmap the text of a tensor has all examples in it; so such a model goes through the loop."""

    def scaled(net: Net, h: Tensor) -> Tensor:
        return h / max(1.0, len(repr(h.detach())) / 100)

    torch.manual_seed(0)
    model, (x, y) = Net(scaled).double(), batch()
    gradients = unchecked(model)
    single = torch.cat([all_rows(gradients, x[i : i + 1].clone(), y[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(all_rows(gradients, x, y), single, equal_nan=True)


class Counter:
    """An objective with a memory, in all the places where one can have it."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def objective(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return remembering(model, batch, self.seen)


def remembering(model: nn.Module, batch: tuple[Tensor, Tensor], seen: list[float]) -> Tensor:
    losses = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
    seen.append(float(losses.detach().sum()))
    return losses * len(seen)


def _closure() -> Any:
    seen: list[float] = []
    return lambda model, batch: remembering(model, batch, seen)


def _default(model: nn.Module, batch: tuple[Tensor, Tensor], seen: list[float] = []) -> Tensor:  # noqa: B006
    return remembering(model, batch, seen)


@pytest.mark.parametrize(
    "goal",
    [
        Counter().objective,
        functools.partial(remembering, seen=[]),
        functools.partial(Counter().objective),
        _closure(),
        _default,
        per_example(_closure()),
    ],
    ids=["method", "partial", "partial of a method", "closure", "default", "alone"],
)
def test_an_objective_that_remembers_is_refused(goal: Any) -> None:
    x, y = batch()
    gradients = at_its_word(PerExampleGradients(nn.Linear(6, 3).double(), goal))
    with refused(InvalidInput, match="keeps the loss.* from one example to the next"):
        all_rows(gradients, x, y)


def test_a_model_of_speech_that_draws_masks_is_told_how_to_leave_them_out() -> None:
    def masked(net: Net, h: Tensor) -> Tensor:
        np.random.rand()  # noqa: NPY002 - as transformers do
        return h

    model, (x, y) = Net(masked).double(), batch()
    model.config = SimpleNamespace(apply_spec_augment=True)
    with refused(InvalidInput, match=r"draws random numbers from.*\n\nhint: model\.config\.apply_spec_augment = False"):
        all_rows(PerExampleGradients(model, LOSS), x, y)
