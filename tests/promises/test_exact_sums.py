"""Sums to the last bit: whatever the order, the chunk, the company and the number of processes."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Encoder, Mechanism, guarantee, make_private
from noisette._gradients import Inexact, PerExampleGradients, SlowPath, chunk_policy
from noisette._gradients.batch_invariance import ChunkSizes
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import HalfNormal, Tails
from noisette.mechanism import COVERED, REAL
from noisette.noise import Gaussian
from tests.conformance.encoder_checks import outside_image
from tests.support.children import together

DIM = 60
ENCODERS = [
    L2(dim=DIM, radius=0.7),
    Ranked(dim=DIM, profiles=Tails()),
    Snap(dim=DIM, profiles=HalfNormal(), radius=3.0),
    L2(dim=DIM, radius=1e-6),
    Ranked(dim=DIM, radius=1e6),
]


def adversarial(count: int, dtype: torch.dtype) -> Tensor:
    """Huge and tiny magnitudes in turn, whose sums in floats depend on the order most, and rows of nothing and NaN."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((count, DIM)) * 10.0 ** rng.choice([-30, -9, -3, 0, 5, 20], (count, 1))
    rows[::7] = rows[1::7][: len(rows[::7])] * -1  # what cancels
    rows[5], rows[6], rows[7, 3] = 0.0, 1e-42, np.nan
    return torch.from_numpy(rows).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernel", "reference"])
@pytest.mark.parametrize("encoder", ENCODERS, ids=repr)
def test_sums_are_the_same_in_any_order_and_any_parts(encoder: Encoder, dtype: torch.dtype) -> None:
    """Casacuberta's orders: as they come, back to front, by size, and summed up one by one."""
    rows = adversarial(97, dtype)
    whole = encoder.encode_sum(rows).unsafe_values()
    order = rows.abs().nan_to_num().sum(dim=1).argsort()
    for again in (rows.flip(0), rows[order], rows[order.flip(0)]):
        assert torch.equal(encoder.encode_sum(again).unsafe_values(), whole)
    for size in (1, 3, 16, 64):
        parts = [encoder.encode_sum(part).unsafe_values() for part in torch.split(rows, size)]
        assert torch.equal(torch.stack(parts).sum(dim=0), whole)
        assert torch.equal(torch.stack(parts[::-1]).sum(dim=0), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernel", "reference"])
@pytest.mark.parametrize("encoder", ENCODERS, ids=repr)
def test_one_example_moves_the_sum_within_the_image_exactly(encoder: Encoder, dtype: torch.dtype) -> None:
    """In fractions: what one row more changes, of whatever size the others are, lies in the image with no tolerance."""
    rows = adversarial(40, dtype)
    whole = encoder.encode_sum(rows).unsafe_values()
    moves = []
    for one in range(0, 40, 3):
        without = encoder.encode_sum(torch.cat([rows[:one], rows[one + 1 :]])).unsafe_values()
        move = [Fraction(a) - Fraction(b) for a, b in zip(whole.tolist(), without.tolist(), strict=True)]
        assert move == [Fraction(value) for value in encoder.encode_sum(rows[one : one + 1]).unsafe_values().tolist()]
        assert sum(value**2 for value in move) <= Fraction(encoder.image.norm) ** 2
        moves.append(torch.tensor([float(value) for value in move], dtype=torch.float64))
    assert outside_image(torch.stack(moves), encoder.image) == []


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 10))


def data(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 1, 6, 6, generator=generator)
    return x, torch.randint(10, (count,), generator=generator)


@pytest.mark.parametrize("encoder", [Ranked(profiles=Tails()), L2(radius=0.1)], ids=repr)
def test_a_gradient_does_not_depend_on_its_company(encoder: Encoder) -> None:
    """Batches of one to ninety: the sum of a batch is that of its parts, to the last bit."""
    model, (x, y) = network(), data(90)
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    encoder = encoder.replace(dim=gradients.dim)
    kernel = encoder.kernel()

    def rows_sum(some: slice) -> Tensor:
        found = [encoder.encode_sum(rows.clone()).unsafe_values() for rows in gradients.chunks((x[some], y[some]))]
        return torch.stack(found).sum(dim=0)

    def fused_sum(some: slice) -> Tensor:
        return gradients.encoded_sum(encoder, (x[some], y[some])).unsafe_values()

    ways = [rows_sum] if kernel is None or encoder.radius == 0.1 else [rows_sum, fused_sum]  # products may round
    for summed in ways:
        whole = summed(slice(0, 90))
        assert gradients.exact
        for cut in (1, 2, 15, 33, 89):
            assert torch.equal(summed(slice(0, cut)) + summed(slice(cut, 90)), whole)


def test_three_processes_have_the_sum_of_one(tmp_path: Path) -> None:
    """A step of one, two and three processes, from the same seed: the sums before noise agree bit for bit."""
    mechanism = Mechanism(Ranked(profiles=Tails()), Gaussian(1.0), rate=0.5, steps=2)

    def work(process: int) -> Any:
        run = make_private(network(), nn.CrossEntropyLoss(), data(120), mechanism, seed=5)
        return run._encode_batch_sum(run.mechanisms[0]).unsafe_values()

    (alone,) = together(1, work, tmp_path / "1")
    for count in (2, 3):
        for found in together(count, work, tmp_path / str(count)):
            assert torch.equal(found, alone)


def test_runs_say_whether_their_gradients_are_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step; an encoder that jumps takes the loop, in which they are."""
    for found, encoder, arithmetic, flags, path in (
        (ChunkSizes(16), Ranked(), COVERED, (), "layers"),
        (None, L2(), REAL, ("inexact",), "layers"),
        (None, Ranked(), COVERED, (), "loop"),
    ):
        mechanism = Mechanism(encoder, Gaussian(1.0), rate=0.5, steps=1)
        monkeypatch.setattr(chunk_policy, "find_invariant_chunk_sizes", lambda *_, found=found: found)
        expected = {"inexact": Inexact, "loop": SlowPath}.get(flags[0] if flags else path)
        with pytest.warns(expected) if expected else nullcontext():
            run = make_private(network(), nn.CrossEntropyLoss(), data(20), mechanism)
        assert (run.flags, run._gradients.path) == (flags, path)
        run.step()
        promise = run.guarantee(1e-3)
        assert (promise.arithmetic, promise.flags) == (arithmetic, flags)
        assert promise.epsilon == guarantee(run.mechanisms, 1e-3).epsilon


def test_one_output_is_computed_by_multiples() -> None:
    """Of a Linear layer with one output, examples left over from fours are rounded otherwise; a few more will do."""
    torch.manual_seed(0)
    x = torch.randn(150, 3000)
    gradients = PerExampleGradients(nn.Linear(3000, 1), nn.MSELoss())
    gradients.check((x[:1], x[:1, :1]))
    assert gradients.exact
    assert gradients._planner is not None
    assert gradients._planner.first.sizes.of(20) < 64
    kept = torch.cat([rows.clone() for rows in gradients.chunks((x, x[:, :1]))])
    for cut in (1, 2, 15, 33, 149):
        alone = torch.cat([rows.clone() for rows in gradients.chunks((x[:cut], x[:cut, :1]))])
        assert torch.equal(alone, kept[:cut])
