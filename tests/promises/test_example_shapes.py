"""Examples of other shapes than the one that was checked: which way they go follows from their own shape alone."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisette import Encoder, Mechanism, make_private
from noisette._gradients import PerExampleGradients
from noisette._gradients.strategies import Loop
from noisette.encoders import L2, Ranked, Snap
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.helpers import refused

LONG = 6


class Sorting(nn.Module):
    """Reads a value of sequences that are long, which only the loop can do."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(5, 18), nn.Linear(18, 3)

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.sigmoid(self.inside(x))
        if x.shape[1] > LONG:
            inside = inside * (1.0 if float(x.sum()) > 0 else 2.0)
        return self.out(inside.mean(dim=1))


class Remembering(nn.Module):
    """Keeps the length of the longest sequence so far, and its outputs depend on it."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.longest = nn.Linear(5, 3), 0

    def forward(self, x: Tensor) -> Tensor:
        self.longest = max(self.longest, x.shape[1])
        return self.out(x.mean(dim=1)) * self.longest


class Caching(nn.Module):
    """Makes a table anew for sequences that are longer than it, as some position embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.table = nn.Linear(5, 3), torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if length > len(self.table):
            self.table = torch.full((length,), 4.0 / length)
        return self.out((x * self.table[:length, None]).mean(dim=1))


def sequences(count: int, length: int) -> tuple[Tensor, Tensor]:
    public = torch.Generator().manual_seed(length)
    return torch.randn(count, length, 5, generator=public), torch.arange(count) % 3


def checked(encoder: Encoder) -> tuple[PerExampleGradients, Encoder]:
    torch.manual_seed(0)
    gradients = PerExampleGradients(Sorting(), nn.CrossEntropyLoss(), exactly=encoder.jumps)
    gradients.check(sequences(1, 4))
    return gradients, encoder.replace(dim=gradients.dim)


def sum_of(gradients: PerExampleGradients, encoder: Encoder, *batches: tuple[Tensor, Tensor]) -> Tensor:
    found = [gradients.encoded_sum(encoder, batch).unsafe_values() for batch in batches]
    return torch.stack(found).sum(dim=0)


@pytest.mark.parametrize("encoder", [L2(radius=0.1), Ranked(), Snap()], ids=lambda encoder: type(encoder).__name__)
def test_a_shape_that_the_way_cannot_run_goes_alone(encoder: Encoder) -> None:
    """Neither in the same step nor in later ones does anybody else's gradient change for it."""
    gradients, encoder = checked(encoder)
    usual, odd = sequences(21, 4), sequences(2, LONG + 1)
    before = sum_of(gradients, encoder, usual)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        its_own = sum_of(gradients, encoder, odd)
    assert isinstance(gradients._planner.of(odd).way, Loop)
    assert not isinstance(gradients._planner.of(usual).way, Loop)
    assert (gradients.path, gradients.exact) == ("layers", True)
    assert torch.equal(sum_of(gradients, encoder, usual), before)
    assert torch.equal(sum_of(gradients, encoder, usual, odd) - before, its_own)


@pytest.mark.parametrize("length", [1, 2, 5, LONG])
def test_other_shapes_are_exact_too(length: int) -> None:
    gradients, encoder = checked(Snap())
    x, y = sequences(21, length)
    whole = sum_of(gradients, encoder, (x, y))
    for one in (0, 3, 20):
        others = torch.arange(len(x)) != one
        rest = sum_of(gradients, encoder, (x[others], y[others]))
        assert torch.equal(whole - rest, sum_of(gradients, encoder, (x[[one]], y[[one]])))
    assert gradients.path == "layers"


def test_the_way_of_a_shape_does_not_depend_on_what_was_drawn_before() -> None:
    """Nor on the weights by then."""
    first, second = checked(Snap())[0], checked(Snap())[0]
    with torch.no_grad():
        for p in second.model.parameters():
            p.mul_(3)
    for gradients in (first, second):
        for length in (2, LONG + 1, 5) if gradients is first else (5, LONG + 2, LONG + 1, 2):
            gradients.encoded_sum(Snap(dim=gradients.dim), sequences(9, length))
    for length in (2, 5, LONG + 1):
        ways = [type(one._planner.of(sequences(1, length)).way) for one in (first, second)]
        assert ways[0] is ways[1]


def told(lengths: list[int]) -> list[str]:
    """All warnings of a run on sequences of these lengths."""
    torch.manual_seed(0)
    data = [(sequences(1, length)[0][0], 1) for length in lengths]
    mechanism = Mechanism(Ranked(), Gaussian(1.0), rate=1.0, steps=3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = Sorting()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in make_private(model, nn.CrossEntropyLoss(), data, mechanism, seed=1):
            optimizer.step()
    return [str(one.message) for one in said]


def test_nothing_is_said_of_a_shape_that_is_drawn() -> None:
    assert told([4] * 8) == told([4] * 7 + [LONG + 1]) == []


class Fussy(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.one_hot(x, 4).float())


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
def test_an_example_that_fails_ends_the_step_and_is_not_described() -> None:
    gradients = PerExampleGradients(Fussy(4, 3), nn.CrossEntropyLoss())
    x, y = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 7])
    gradients.check((x, y))
    with refused(InvalidInput, match="fails on an example that was drawn") as caught:
        gradients.encoded_sum(L2(dim=gradients.dim), (x, y))
    error: Any = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "7" not in str(error)


def test_memory_that_is_missing_is_told_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, batch = (
        PerExampleGradients(nn.Linear(5, 3), nn.CrossEntropyLoss()),
        (torch.randn(4, 5), torch.arange(4) % 3),
    )
    gradients.check(batch)
    way = gradients._planner.first.way

    def full(*_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 48123 bytes")

    monkeypatch.setattr(type(way), "terms", full)
    with refused(InvalidInput, match="does not fit into memory") as caught:
        gradients.encoded_sum(L2(dim=gradients.dim), batch)
    assert "48123" not in str(caught.value)


@pytest.mark.parametrize("model", [Remembering, Caching])
@pytest.mark.parametrize("trained", [False, True])
def test_a_model_that_keeps_what_shapes_it_has_seen_is_refused_from_then_on(
    model: type[nn.Module], trained: bool
) -> None:
    """A longer example would change all others: it cannot be computed, and nothing after it can."""
    torch.manual_seed(0)
    gradients = PerExampleGradients(model(), nn.CrossEntropyLoss())
    gradients.check(sequences(1, 4))
    encoder = L2(dim=gradients.dim)
    gradients.encoded_sum(encoder, sequences(9, 4))
    if trained:  # what is made of parameters may differ now, and nothing else
        with torch.no_grad():
            gradients.parameters[0].mul_(2)
    for length in (9, 4, 9):
        with refused(InvalidInput, match=rf"keeps {model.__name__}\."):
            gradients.encoded_sum(encoder, sequences(9, length))


@pytest.mark.parametrize("product", [torch.prod, lambda h, dim: torch.cumprod(h, dim)[:, -1]], ids=["prod", "cumprod"])
def test_a_zero_of_one_example_changes_no_other(product: Any) -> None:
    """Torch has two formulas for the derivative of a product, and takes the slow one if any number is zero.

    The gradient of a weight cancels, so that what they round differently is all of it.
    """

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.out = nn.Parameter(torch.rand(50) + 0.5), nn.Linear(100, 1)

        def forward(self, x: Tensor) -> Tensor:
            p, q = x[:, :50], x[:, 50:]
            whole = product(torch.stack([self.weight.expand_as(p), p, q], 1), 1)
            return 0 * self.out(x) + (whole - self.weight * (p * q)).sum(1, keepdim=True) + self.out.bias

    torch.manual_seed(0)
    gradients = PerExampleGradients(Product(), nn.MSELoss(), exactly=True)
    x, y = torch.rand(33, 100) + 0.1, torch.randn(33, 1)
    x[32, 0] = 0
    gradients.check((x[:1], y[:1]))
    whole, rest, one = (
        sum_of(gradients, Snap(dim=gradients.dim), (x[some], y[some]))
        for some in (slice(None), slice(32), slice(32, 33))
    )
    assert torch.equal(whole, rest + one)
    assert gradients.path == "vmap", "of cumprod it is known from torch's sources alone"


class Naming(nn.Module):
    """Names an attribute by a value of an example, once there is a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if float(x.max()) > 40:
            setattr(self, f"value_{int(x.max())}", 1)
        return self.out(x)


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
def test_an_error_on_an_example_that_was_drawn_does_not_name_what_it_did() -> None:
    x = torch.randn(8, 3)
    x[5, 0] = 57.0
    mechanism = Mechanism(L2(), Gaussian(1.0), rate=1.0, steps=3)
    run = make_private(Naming(), nn.CrossEntropyLoss(), (x, torch.arange(8) % 3), mechanism, seed=1)
    for _ in range(2):
        with refused(InvalidInput, match="did not do when it was checked") as caught:
            run.step()
        assert "57" not in str(caught.value)
        assert caught.value.__context__ is None
