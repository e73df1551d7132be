"""What the native module refuses, and what happens without it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from noisette import Encoder, _native
from noisette._gradients import PerExampleGradients
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Tails
from noisette.errors import InvalidInput
from tests.support.helpers import ordinary_rows, refused

native_module = _native.native
ONE, STEP = torch.ones, 2.0**-20
LEVELS, KNOTS = np.ones((2, 3), np.float32), np.ones((1, 2), np.float32)


def layers() -> object:
    return native_module.Layers()


def run(plan: object, what: object, dim: int, threads: int = 1, isa: str = "plain") -> None:
    numbers = torch.zeros(2 if plan is L2_PLAN else 0, dtype=torch.float64)
    native_module.encode_sum(plan, what, torch.zeros(dim, dtype=torch.float64), numbers, numbers.clone(), threads, isa)


def linear(x: torch.Tensor, g: torch.Tensor, at: int = 0, bias_at: int = 6) -> object:
    made = layers()
    made.linear(x, g, at)
    made.rows(g, bias_at)
    return made


def conv(x: torch.Tensor, g: torch.Tensor, kernel: list[int], stride: list[int], margins: list[int]) -> None:
    layers().conv(x, g, kernel, stride, margins, 0)


def rows(dims: list[int], x: torch.Tensor | None = None) -> object:
    made, at = layers(), 0
    for part in (ONE(2, 6) if x is None else x).split(dims, dim=1):
        made.rows(part, at)
        at += part.shape[1]
    return made


def plan(kind: str = "ranked", dim: int = 6) -> object:
    made = native_module.Plan(kind, 1.0, STEP)
    made.add_block(dim, LEVELS, np.array([0, 1, 2]), KNOTS, np.array([dim]))
    return made


def block(dim: int, levels: np.ndarray, starts: list[int], knots: np.ndarray, ends: list[int]) -> None:
    native_module.Plan("ranked", 1.0, STEP).add_block(dim, levels, np.array(starts, int), knots, np.array(ends))


ONES = [1, 1], [1, 1], [0, 0, 0, 0]
L2_PLAN = native_module.Plan("l2", 1.0, STEP)
REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "kind": ("kind", lambda: native_module.Plan("linf", 1.0, STEP)),
    "radius zero": ("radius", lambda: native_module.Plan("l2", 0.0, STEP)),
    "step zero": ("step", lambda: native_module.Plan("l2", 1.0, 0.0)),
    "step nan": ("step", lambda: native_module.Plan("l2", 1.0, float("nan"))),
    "radius nan": ("radius", lambda: native_module.Plan("l2", float("nan"), STEP)),
    "no coordinates": ("empty", lambda: block(0, LEVELS, [0, 1, 2], KNOTS, [0])),
    "no levels": ("empty", lambda: block(6, np.ones((2, 0), np.float32), [], KNOTS, [6])),
    "starts too short": ("each level", lambda: block(6, LEVELS, [0, 1], KNOTS, [6])),
    "starts above zero": ("each level", lambda: block(6, LEVELS, [1, 2, 3], KNOTS, [6])),
    "starts fall": ("ascend", lambda: block(6, LEVELS, [0, 2, 2], KNOTS, [6])),
    "level too high": ("steps", lambda: block(6, 200 * LEVELS, [0, 1, 2], KNOTS, [6])),
    "knots of others": ("each knot", lambda: block(6, LEVELS, [0, 1, 2], np.ones((1, 3), np.float32), [6])),
    "knots too short": ("dimension", lambda: block(6, LEVELS, [0, 1, 2], KNOTS, [5])),
    "rows of no length": ("rows are", lambda: rows([6, 0])),
    "rows in three dimensions": ("rows are", lambda: layers().rows(ONE(2, 3, 6), 0)),
    "rows across": ("lie together", lambda: rows([6], ONE(6, 2).T)),
    "linear in three dimensions": ("linear", lambda: linear(ONE(2, 3, 1), ONE(2, 2))),
    "numbers of examples": ("examples differ", lambda: linear(ONE(3, 3), ONE(2, 2))),
    "convolution in three dimensions": ("four dimensions", lambda: conv(ONE(2, 3, 3), ONE(2, 3, 3), *ONES)),
    "kernel of one number": ("2, 2, 4", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 3, 3, 1), [1], [1, 1], [0] * 4)),
    "kernel of no size": ("kernel", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 3, 3, 1), [0, 1], [1, 1], [0] * 4)),
    "no stride": ("stride", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 3, 3, 1), [1, 1], [1, 0], [0] * 4)),
    "negative margin": ("margins", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 3, 3, 1), [1, 1], [1, 1], [0, 0, 0, -1])),
    "output too high": ("higher", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 3, 2, 1), [2, 2], [1, 1], [0] * 4)),
    "output too wide": ("wider", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 2, 3, 1), [2, 2], [1, 1], [0] * 4)),
    "output of no width": ("empty", lambda: conv(ONE(2, 3, 3, 1), ONE(2, 2, 0, 1), [2, 2], [1, 1], [0] * 4)),
    "no channels": ("empty", lambda: conv(ONE(2, 3, 3, 0), ONE(2, 2, 2, 1), [2, 2], [1, 1], [0] * 4)),
    "channels first": ("lie together", lambda: conv(ONE(2, 2, 3, 3).permute(0, 2, 3, 1), ONE(2, 3, 3, 1), *ONES)),
    "outside the total": ("outside", lambda: run(L2_PLAN, linear(ONE(2, 3), ONE(2, 2), bias_at=7), 8)),
    "before the total": ("outside", lambda: run(L2_PLAN, linear(ONE(2, 3), ONE(2, 2), at=-1), 8)),
    "on top of each other": ("whole gradient", lambda: run(L2_PLAN, linear(ONE(2, 3), ONE(2, 2), bias_at=0), 8)),
    "a hole": ("whole gradient", lambda: run(plan(dim=9), linear(ONE(2, 3), ONE(2, 2)), 9)),
    "in two blocks": ("two blocks", lambda: run(two_blocks(), linear(ONE(2, 3), ONE(2, 2)), 8)),
    "other blocks": ("whole gradient", lambda: run(plan(dim=5), rows([6]), 6)),
    "no blocks": ("blocks", lambda: run(native_module.Plan("snap", 1.0, STEP), rows([6]), 6)),
    "blocks for clipping": ("blocks", lambda: run(plan("l2"), rows([6]), 6)),
    "clipping without norms": ("each example", lambda: clip(rows([6]), squares=0)),
    "clipping without a place for factors": ("each example", lambda: clip(rows([6]), factors=1)),
    "norms where nothing is clipped": ("each example", lambda: clip(rows([6]), plan())),
    "no threads": ("thread", lambda: run(L2_PLAN, rows([6]), 6, threads=0)),
    "no such variant": ("instruction set", lambda: run(L2_PLAN, rows([6]), 6, isa="mmx")),
}  # fmt: skip


def clip(what: object, plan: object = L2_PLAN, squares: int = 2, factors: int = 2) -> None:
    numbers = [torch.zeros(n, dtype=torch.float64) for n in (6, squares, factors)]
    native_module.encode_sum(plan, what, *numbers, 1, "plain")


def two_blocks() -> object:
    made = plan(dim=4)
    made.add_block(4, LEVELS, np.array([0, 1, 2]), KNOTS, np.array([4]))
    return made


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    says, call = REFUSED[name]
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("wrong", [torch.float64, torch.float16, torch.int32])
def test_other_types_are_refused_not_converted(wrong: torch.dtype) -> None:
    with pytest.raises(TypeError, match="float32"):
        rows([6], ONE(2, 6).to(wrong))
    for place in range(3):
        numbers = [torch.zeros(n, dtype=torch.float64) for n in (6, 2, 2)]
        numbers[place] = numbers[place].to(wrong if wrong != torch.float64 else torch.float32)
        with pytest.raises(TypeError, match="float64"):
            native_module.encode_sum(L2_PLAN, rows([6]), *numbers, 1, "plain")


def test_what_fits_is_not_refused() -> None:
    run(L2_PLAN, linear(ONE(2, 3), ONE(2, 2)), 8)
    run(plan(), rows([6]), 6)
    run(plan("snap"), rows([2, 4]), 6)
    clip(rows([2, 4]))


def test_clipping_leaves_coordinates_of_others_alone() -> None:
    """What is not in the layers adds to the norm by its square alone; the kernel tells what it multiplied by."""
    made = layers()
    made.rows(torch.tensor([[3.0], [0.5]]), 1)
    total, factors = torch.zeros(3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    native_module.encode_sum(L2_PLAN, made, total, torch.tensor([16.0, 0.0]).double(), factors, 1, "plain")
    torch.testing.assert_close(factors, torch.tensor([0.2, 1.0]).double())
    torch.testing.assert_close(total, torch.tensor([0.0, 0.6 + 0.5, 0.0]).double(), rtol=1e-6, atol=0)


def test_layers_keep_what_they_point_at() -> None:
    """A tensor that nobody else holds is not freed, and overwritten, before it is summed."""
    made = layers()
    made.rows(torch.full((4, 5_000), 2.0), 0)
    total, others = torch.zeros(5_000, dtype=torch.float64), [torch.full((4, 5_000), 9.0) for _ in range(8)]
    numbers = torch.zeros(4, dtype=torch.float64)
    native_module.encode_sum(native_module.Plan("l2", 1e9, STEP), made, total, numbers, numbers.clone(), 1, "plain")
    assert torch.equal(total, torch.full((5_000,), 8.0, dtype=torch.float64))
    assert len(others) == 8


@pytest.fixture
def _no_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As after an installation without a compiler."""
    monkeypatch.delenv("NOISETTE_KERNEL", raising=False)
    monkeypatch.setattr(_native, "_built", False)
    _native._say_once.cache_clear()
    yield
    _native._say_once.cache_clear()


@pytest.mark.usefixtures("_no_kernel")
@pytest.mark.parametrize("encoder", [Ranked(dim=50, profiles=Tails()), Snap(dim=50), L2(dim=50)], ids=repr)
def test_without_a_kernel_the_reference_runs_and_says_so_once(encoder: Encoder) -> None:
    gradients = ordinary_rows(9, 50, seed=1).float()
    with pytest.warns(_native.NoKernel, match="without its native kernel") as caught:
        found = encoder.encode_sum(gradients).unsafe_values()
    assert len(caught) == 1
    assert encoder.kernel() is None
    assert torch.equal(found, encoder.encode(gradients).sum(dim=0))
    assert torch.equal(encoder.encode_sum(gradients).unsafe_values(), found)  # a second warning would be an error


@pytest.mark.usefixtures("_no_kernel")
def test_without_a_kernel_gradients_are_encoded_all_the_same() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(5, 6), torch.arange(5) % 3
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    encoder = Ranked(dim=gradients.dim)
    with pytest.warns(_native.NoKernel):
        found = gradients.encoded_sum(encoder, (x, y)).unsafe_values()
    table = torch.cat([chunk.clone() for chunk in gradients.chunks((x, y))])
    torch.testing.assert_close(found, encoder.encode(table).sum(dim=0))


def test_a_package_without_the_module_imports() -> None:
    """In a process of its own, where the module cannot be found: everything but the kernel is there."""
    code = (
        "import sys, warnings; sys.modules['noisette._native._extension'] = None\n"
        "import torch, noisette\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(2): noisette.encoders.L2(dim=3).encode_sum(torch.ones(2, 3))\n"
        "print([w.category.__name__ for w in said])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['NoKernel']\n"


def test_off_takes_the_reference_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KERNEL", "off")
    encoder = Ranked(dim=50, profiles=Tails())
    gradients = ordinary_rows(9, 50, seed=1).float()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoder.kernel() is None
        assert torch.equal(encoder.encode_sum(gradients).unsafe_values(), encoder.encode(gradients).sum(dim=0))


def test_an_unknown_variant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KERNEL", "nonsense")
    with refused(InvalidInput, "NOISETTE_KERNEL is 'nonsense'") as _:
        Ranked(dim=50).kernel()
    with pytest.raises(InvalidInput) as caught:
        _native.variant()
    assert "off" in caught.value.hint
    assert "plain" in caught.value.hint
