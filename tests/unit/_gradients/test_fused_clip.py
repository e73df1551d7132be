"""Encoded sums from terms: those of encoded rows, inside the image, with few rows in memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisette import Encoder
from noisette._gradients import PerExampleGradients, fused_clip
from noisette._gradients.flat_params import Layout
from noisette._gradients.grad_forms import DenseRows, GradForm, OuterProduct, Slice, Sum, SummedOuterProducts
from noisette._gradients.lookup import EmbeddingRows
from noisette._gradients.rules.convolution import Geometry, Image, Patches
from noisette._native import cpu, reference
from noisette.encoders import L2, Ranked, Snap
from noisette.encoders.profiles import Blocks, Tails
from tests.support.bucketed import VARIANTS
from tests.support.gradient_models import Tied, encoded
from tests.support.helpers import ordinary_rows
from tests.support.rule_cases import bent

COUNT, TOKENS = 300, 3


@pytest.fixture(params=VARIANTS, autouse=True)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NOISETTE_KERNEL", request.param)
    return str(request.param)


def clipping(radius: float) -> cpu.Kernel:
    kernel = L2(dim=1, radius=radius).kernel()
    assert kernel is not None
    return kernel


def numbers(count: int = COUNT, seed: int = 0) -> dict[str, Tensor]:
    """What layers may have seen, float32: some examples are small and some large."""

    def some(*shape: int, at: int) -> Tensor:
        return ordinary_rows(count, int(np.prod(shape)), seed + at).view(count, *shape).float()

    return {
        "x": some(5, at=1),
        "g": some(2, at=2),
        "xs": some(TOKENS, 4, at=3),
        "gs": some(TOKENS, 3, at=4),
        "e": some(TOKENS, 2, at=5),
        "bias": some(4, at=6),
        "twice": some(TOKENS, 4, at=7),
    }


def terms(seen: Mapping[str, Tensor]) -> dict[GradForm, int]:
    """One of every form, with the length of its parameter."""
    index = torch.arange(len(seen["e"]) * TOKENS).view(-1, TOKENS) % 7 % 5
    return {
        OuterProduct(seen["x"], seen["g"]): 10,
        DenseRows(seen["bias"]): 4,
        SummedOuterProducts(seen["xs"], seen["gs"]): 12,
        EmbeddingRows(index, seen["e"], 5, padding=1): 10,
        Sum([SummedOuterProducts(seen["xs"], seen["gs"]), SummedOuterProducts(seen["twice"], seen["gs"])]): 12,
        Slice(SummedOuterProducts(seen["twice"], seen["gs"]), 2, 12): 20,
    }


def rows_of(made: Mapping[GradForm, int], count: int) -> Tensor:
    """Gradients (B, dim), float32, which are also what the kernel is given where a term is not factored."""
    return torch.cat([term.rows(slice(None), torch.empty(count, n)) for term, n in made.items()], dim=1)


@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0, 1e3, 1e7])
def test_the_clipped_sum_is_that_of_clipped_rows(radius: float) -> None:
    made = terms(numbers())
    within = clipping(radius).with_products(256)[1]  # which leaves room for what products round
    expected = reference.clip_norm(reference.finite_rows(rows_of(made, COUNT)), within).sum(dim=0)
    found = encoded(clipping(radius), made, COUNT)
    assert found.dtype == torch.float64
    # float32 has rounded the rows of outer products, and the factors have not
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6 * float(expected.abs().max()))


def test_factored_sums_are_in_double_precision() -> None:
    seen = numbers()
    made = {OuterProduct(seen["x"], seen["g"]): 10}
    exact = torch.einsum("bo,bi->boi", seen["g"].double(), seen["x"].double()).flatten(1)
    expected = reference.clip_norm(exact, clipping(0.1).with_products(256)[1] / (1 - 2.0**-22)).sum(dim=0)
    found = encoded(clipping(0.1), made, COUNT)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12 * float(expected.abs().max()))


DIM = 68
ENCODERS = [
    Ranked(dim=DIM, profiles=Tails(), radius=0.5),
    Snap(dim=DIM),
    Ranked(dim=DIM, profiles=Blocks(dims=(14, 12, 22, 20), profiles=Tails()), radius=0.5),
    Snap(dim=DIM, profiles=Blocks(dims=(10, 4, 12, 10, 12, 20), profiles=Tails())),
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_sums_by_rank_are_those_of_rows(encoder: Encoder) -> None:
    kernel, made = encoder.kernel(), terms(numbers())
    assert kernel is not None
    found, expected = encoded(kernel, made, COUNT), kernel.rows_sum(rows_of(made, COUNT))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_a_few_at_a_time_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    made = terms(numbers())
    kernels = [clipping(0.1), ENCODERS[0].kernel()]
    whole = [encoded(kernel, made, COUNT) for kernel in kernels]
    monkeypatch.setattr(fused_clip, "_AT_HAND", 7 * DIM)
    for kernel, expected in zip(kernels, whole, strict=True):
        torch.testing.assert_close(encoded(kernel, made, COUNT), expected, rtol=1e-12, atol=1e-14)


def test_an_empty_batch_is_zero() -> None:
    gradients = PerExampleGradients(Tied(), bent)
    for encoder in (L2(dim=gradients.dim), Ranked(dim=gradients.dim)):
        found = gradients._fused_sum(encoder, (torch.zeros(0, 4, dtype=torch.long), torch.zeros(0)))
        assert torch.equal(found, torch.zeros(gradients.dim, dtype=torch.float64))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", numbers(1))
def test_an_example_that_is_not_finite_counts_as_zero(bad: float, where: str) -> None:
    """In all of its coordinates, whichever of its terms is broken."""
    seen = numbers(9)
    zeroed = {name: part.clone() for name, part in seen.items()}
    for part in zeroed.values():
        part[0] = 0
    seen[where][0].view(-1)[0] = bad
    for kernel in (clipping(0.5), *(encoder.kernel() for encoder in ENCODERS)):
        assert torch.equal(encoded(kernel, terms(seen), 9), encoded(kernel, terms(zeroed), 9))


SCALES = [1e-45, 1e-40, 1e-22, 1e-5, 1.0, 1e10, 1e19, 1e30, 3e38]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("form", ["outer", "products", "lookup", "rows", "all"])
def test_one_example_moves_the_clipped_sum_by_at_most_the_radius(form: str, scale: float) -> None:
    rng = np.random.default_rng(1)
    kernel = clipping(0.3)
    for other in SCALES:
        for _ in range(3):
            signs = torch.from_numpy(np.sign(rng.standard_normal((1, 4, 20))))
            x = (signs * torch.from_numpy(rng.uniform(0.1, 1, (1, 4, 20))) * scale).float()
            g = torch.from_numpy(rng.uniform(-1, 1, (1, 4, 3)) * other).float()
            every: dict[str, dict[GradForm, int]] = {
                "outer": {OuterProduct(x[:, 0], g[:, 0]): 60},
                "products": {SummedOuterProducts(x, g): 60},
                "lookup": {EmbeddingRows(torch.tensor([[0, 2, 0, 0]]), x, 3): 60},
                "rows": {DenseRows(x): 80},
            }
            every["all"] = {term: length for made in every.values() for term, length in made.items()}
            moved = encoded(kernel, every[form], 1)
            assert torch.isfinite(moved).all()
            assert float(torch.linalg.vector_norm(moved)) <= 0.3


def cancelling(ratio: float, count: int = 1, tokens: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """x (count, tokens, 8) and g (count, tokens, 5), float32: products of size `ratio` that add up to about one."""
    torch.manual_seed(seed)
    x, g = torch.randn(count, tokens // 2, 8), torch.randn(count, tokens // 2, 5)
    size = torch.einsum("bto,bti->boi", g, x).flatten(1).norm(dim=1).view(-1, 1, 1)
    rest = torch.randn(count, tokens // 2, 5) / tokens**0.5 / 3
    g = g / size * ratio
    return torch.cat([x, x], dim=1), torch.cat([g, rest - g], dim=1)


@pytest.mark.parametrize("ratio", [1e6, 1e7])
@pytest.mark.parametrize("form", ["products", "table", "added", "beside others"])
def test_terms_that_cancel_over_tokens_stay_within_the_radius(form: str, ratio: float) -> None:
    """Gram norms and float32 sums over a whole chunk would be wrong without bound here."""
    kernel = clipping(0.3)
    for seed in range(10):
        x, g = cancelling(ratio, seed=seed)
        half = slice(0, 32), slice(32, 64)
        every: dict[str, dict[GradForm, int]] = {
            "products": {SummedOuterProducts(x, g): 40},
            "table": {EmbeddingRows(torch.zeros(1, 64, dtype=torch.long), g, 8): 40},
            "added": {Sum([SummedOuterProducts(x[:, part], g[:, part]) for part in half]): 40},
            "beside others": {
                SummedOuterProducts(x, g): 40,
                DenseRows(g.sum(dim=1)): 5,
                OuterProduct(x[:, 0], g[:, 0] / ratio): 40,
            },
        }
        exact = torch.einsum("bto,bti->boi", g.double(), x.double()).flatten(1)
        assert float(exact.norm()) < 1e-4 * ratio, "they cancel"
        moved = encoded(kernel, every[form], 1)
        assert 0.2 < float(torch.linalg.vector_norm(moved)) <= 0.3


@pytest.mark.parametrize("ratio", [1e6, 1e7])
def test_one_example_among_others_that_cancel(ratio: float) -> None:
    """What a sum loses without one of its examples is at most the radius, and what is left is not moved."""
    x, g = cancelling(ratio, count=6, seed=1)
    index = torch.arange(64).repeat(6, 1) % 32 % 3  # opposites meet in one row of the table

    def summed(keep: list[int]) -> Tensor:
        made: dict[GradForm, int] = {
            SummedOuterProducts(x[keep], g[keep]): 40,
            EmbeddingRows(index[keep], g[keep], 3): 15,
        }
        return encoded(clipping(0.3), made, len(keep))

    for one in range(6):
        others = [number for number in range(6) if number != one]
        moved = summed(list(range(6))) - summed(others)
        assert 0.29 < float(torch.linalg.vector_norm(moved)) <= 0.3 * (1 + 1e-12)


@pytest.mark.parametrize("ratio", [1e6, 1e7])
def test_a_model_whose_tokens_cancel(ratio: float) -> None:
    """The whole fused path: one example, the others broken, in the ball and rank by rank below the profile."""

    class Opposed(nn.Module):
        """The same tokens with opposite signs, but for little."""

        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(8, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.inner(x).chunk(2, dim=1)
            return self.head((ratio * first - ratio * second).sum(dim=1) / ratio + first.sum(dim=1))

    torch.manual_seed(0)
    model, tokens = Opposed(), torch.randn(4, 16, 8)
    x = torch.cat([tokens, tokens * (1 + 1e-7)], dim=1)
    gradients = PerExampleGradients(model, bent)
    for one in range(4):
        broken = torch.full_like(x, torch.nan)
        broken[one] = x[one]
        moved = gradients._fused_sum(L2(dim=gradients.dim, radius=0.3), (broken, torch.zeros(4)))
        assert moved is not None
        assert 0.29 < float(torch.linalg.vector_norm(moved)) <= 0.3


def test_norms_of_tied_weights_have_their_cross_terms() -> None:
    """An embedding that is also the output layer, against rows of the general way."""
    torch.manual_seed(0)
    model, x, y = Tied(), torch.randint(7, (9, 4)), torch.randint(7, (9,))
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    rows = torch.empty(9, gradients.dim)
    gradients._general[0].rows((x, y), rows)
    encoder = L2(dim=gradients.dim, radius=0.5 * float(rows.norm(dim=1).median()))
    found = gradients._fused_sum(encoder, (x, y))
    torch.testing.assert_close(found, encoder.encode_sum(rows).unsafe_values(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["products", "added", "part", "image", "patches"])
def test_a_row_does_not_depend_on_its_place(form: str) -> None:
    """Bit by bit: matrix products round by where their results lie, which tokens that cancel make large."""
    torch.manual_seed(0)
    geometry = Geometry((3, 3), (1, 1), (1, 1), 1, ((0, 0), (1, 1)))
    for tokens, inner, outer in ((64, 8, 5), (33, 7, 3), (64, 5, 9), (128, 16, 17)):
        x, g = (torch.randn(1, tokens, size).expand(8, -1, -1).contiguous() for size in (inner, outer))
        length = inner * outer
        picture, ends = (
            torch.randn(1, inner, 12, 12).expand(8, -1, -1, -1),
            torch.randn(1, outer, 10, 12).expand(8, -1, -1, -1),
        )
        term, many = {
            "products": (SummedOuterProducts(x, g), length),
            "added": (
                Sum([SummedOuterProducts(x, g), SummedOuterProducts(x, 2 * g), SummedOuterProducts(x.flip(1), g)]),
                length,
            ),
            "part": (Slice(SummedOuterProducts(x, g), 1, length), length + 3),
            "image": (Image(geometry, picture, ends, 1), 9 * length),
            "patches": (Patches(geometry, picture, ends, 1), 9 * length),
        }[form]
        layout = Layout(nn.ParameterList([torch.zeros(2), torch.zeros(many), torch.zeros(1)]))
        found = term.rows(slice(None), layout.columns(layout.rows(8))[1]).clone()
        assert torch.equal(found, found[:1].expand(8, -1)), (tokens, inner, outer)
