"""Terms of every form: rows, norms and weighted sums against gradients written out, and what is not finite."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from noisette._gradients.grad_forms import (
    DenseRows,
    GradForm,
    NormAndSumForm,
    OuterProduct,
    Slice,
    Sum,
    SummedOuterProducts,
    at_least_float32,
    outer_product,
)
from noisette._gradients.lookup import EmbeddingRows
from tests.support.helpers import ordinary_rows
from tests.support.rule_cases import check_term

COUNT = 5


def values(*shape: int, seed: int = 0) -> Tensor:
    """Ordinary numbers of very different sizes, float64."""
    return ordinary_rows(shape[0], int(torch.tensor(shape[1:]).prod()), seed).view(shape)


def written_out(x: Tensor, g: Tensor) -> Tensor:
    return torch.einsum("bto,bti->boi", g, x).flatten(1)


def looked_up(index: Tensor, g: Tensor, count: int, padding: int | None = None) -> Tensor:
    found = torch.zeros(len(g), count, g.shape[2], dtype=g.dtype)
    for example in range(len(g)):
        for row, value in zip(index[example], g[example], strict=True):
            if row != padding:
                found[example, row] += value
    return found.flatten(1)


INDEX = torch.tensor([[0, 1, 1], [3, 3, 3], [2, 0, 2], [1, 2, 3], [0, 0, 1]])
X, G, LATER = values(COUNT, 3, 4), values(COUNT, 3, 2, seed=1), values(COUNT, 3, 4, seed=2)
FORMS: dict[str, tuple[Callable[[], GradForm], Callable[[], Tensor]]] = {
    "outer": (lambda: OuterProduct(X[:, 0], G[:, 0]), lambda: written_out(X[:, :1], G[:, :1])),
    "outer, one position": (lambda: outer_product(X[:, :1], G[:, :1]), lambda: written_out(X[:, :1], G[:, :1])),
    "products": (lambda: outer_product(X, G), lambda: written_out(X, G)),
    "products in two dimensions": (
        lambda: outer_product(X.view(5, 1, 3, 4), G.view(5, 1, 3, 2)),
        lambda: written_out(X, G),
    ),
    "rows": (lambda: DenseRows(X), lambda: X.flatten(1)),
    "rows, one number": (lambda: DenseRows(X[:, 0, 0]), lambda: X[:, 0, :1]),
    "lookup": (lambda: EmbeddingRows(INDEX, G, 4), lambda: looked_up(INDEX, G, 4)),
    "lookup with padding": (lambda: EmbeddingRows(INDEX, G, 4, padding=1), lambda: looked_up(INDEX, G, 4, 1)),
    "lookup, one index": (lambda: EmbeddingRows(INDEX[:, 0], G[:, 0], 4), lambda: looked_up(INDEX[:, :1], G[:, :1], 4)),
    "lookup in two dimensions": (
        lambda: EmbeddingRows(INDEX.view(5, 3, 1), G.view(5, 3, 1, 2), 4),
        lambda: looked_up(INDEX, G, 4),
    ),
    "part": (
        lambda: Slice(outer_product(X, G), 3, 8),
        lambda: torch.nn.functional.pad(written_out(X, G), (3, 2)),
    ),
    "part of rows": (lambda: Slice(DenseRows(X), 1, 12), lambda: torch.nn.functional.pad(X.flatten(1), (1, 0))),
    "added": (lambda: Sum([outer_product(X, G), outer_product(LATER, G)]), lambda: written_out(X + LATER, G)),
    "added to rows": (
        lambda: Sum([DenseRows(written_out(X, G)), OuterProduct(X[:, 0], G[:, 0])]),
        lambda: written_out(X, G) + written_out(X[:, :1], G[:, :1]),
    ),
    "a table that is also an output": (
        lambda: Sum([EmbeddingRows(INDEX, G, 4), OuterProduct(G[:, 0], X[:, 0]), DenseRows(X[:, 1:].flatten(1))]),
        lambda: looked_up(INDEX, G, 4) + written_out(G[:, :1], X[:, :1]) + X[:, 1:].flatten(1),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form(name: str) -> None:
    make, expected = FORMS[name]
    check_term(make(), expected())


def test_terms_of_one_parameter_have_no_norm_of_their_own() -> None:
    """The square of a sum is not the sum of squares: only the rows tell."""
    assert not isinstance(Sum([OuterProduct(X[:, 0], G[:, 0])] * 2), NormAndSumForm)
    assert not isinstance(Slice(OuterProduct(X[:, 0], G[:, 0]), 0, 8), NormAndSumForm)


def test_rows_that_are_there_stay_as_they_are() -> None:
    """Added must not write into them: they may belong to somebody else."""
    mine = X.flatten(1).clone()
    added = Sum([DenseRows(mine), DenseRows(mine)])
    found = added.rows(slice(None), torch.empty_like(mine))
    torch.testing.assert_close(found, 2 * X.flatten(1))
    assert torch.equal(mine, X.flatten(1))


@settings(max_examples=40)
@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.none() | st.integers(0, 3),
    st.integers(1, 3),
)
def test_any_lookup(count: int, index: list[int], padding: int | None, width: int) -> None:
    every = torch.tensor(index).roll(1).repeat(count, 1)
    g = values(count, 6, width, seed=3)
    check_term(EmbeddingRows(every, g, 4, padding), looked_up(every, g, 4, padding))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["x", "g", "table"])
def test_a_weight_of_zero_leaves_an_example_out_whatever_it_is(where: str, bad: float) -> None:
    """Zero times infinity is no number; the norm tells that the example is broken."""
    x, g = X[:, 0].clone(), G.clone()
    (x if where == "x" else g)[2, 0] = bad
    term: NormAndSumForm = EmbeddingRows(INDEX, g, 4) if where == "table" else OuterProduct(x, g[:, 0])
    whole = EmbeddingRows(INDEX, G, 4) if where == "table" else OuterProduct(X[:, 0], G[:, 0])
    assert term.square_norms().isfinite().tolist() == [True, True, False, True, True]
    found, expected = (torch.zeros(8, dtype=torch.float64) for _ in range(2))
    weights = torch.tensor([1.0, 2.0, 0.0, -1.0, 0.5]).double()
    term.add(weights, found, 2.0**-40)
    whole.add(weights, expected, 2.0**-40)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_autocast_has_made_shorter_adds_up_in_float32(dtype: torch.dtype) -> None:
    x, g = torch.ones(1, 300, 2, dtype=dtype), torch.ones(1, 300, 1, dtype=dtype, requires_grad=True)
    for term in (outer_product(x, g), EmbeddingRows(torch.zeros(1, 300, dtype=torch.long), x, 1)):
        found = term.rows(slice(None), torch.empty(1, 2))
        assert found.tolist() == [[300.0, 300.0]]
        assert not found.requires_grad
    assert at_least_float32(g).dtype == torch.float32
    assert at_least_float32(torch.ones(1).double()).dtype == torch.float64


def test_products_are_factored_only_where_nothing_cancels() -> None:
    """Over positions terms may cancel, and a norm from factors would be wrong without bound."""
    assert isinstance(outer_product(X[:, :1], G[:, :1]), OuterProduct)
    assert isinstance(outer_product(X, G), SummedOuterProducts)
    assert not isinstance(outer_product(X, G), NormAndSumForm)
