"""Gradients of one parameter for every example of a chunk, in the form in which a layer gives them.

A layer's rule says how the gradient of an example follows from what went into the layer and the derivative at what
came out. It is one of a few forms: a sum of outer products, rows that are there already, rows of a table
(`noisette._gradients.lookup`), patches of an image (`noisette._gradients.rules.convolution`). Each form knows its
`rows`; some know norms and weighted sums without.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noisette import _native
from noisette._native.cpu import kernel_supports

if TYPE_CHECKING:
    from noisette._native._extension import Layers

__all__ = [
    "DenseRows",
    "GradForm",
    "KernelForm",
    "LargeOuterProducts",
    "NormAndSumForm",
    "OuterProduct",
    "Slice",
    "Sum",
    "SummedOuterProducts",
    "aligned_empty",
    "at_least_float32",
    "by_position",
    "outer_product",
]

_ALIKE = 16  # numbers after which memory is aligned as before
_SMALL = 1 << 16  # coordinates of a weight whose rows are computed at once
_SLICE = 1 << 18  # coordinates of a larger one that are: they stay in the cache
_FEW = 8  # examples whose rows are there together
_LARGEST = 2.0**126  # what sums in float32 do not leave their range below
_SPARE = 2.0**-22  # for what products in float32 round


class GradForm(ABC):
    """The gradients of a parameter of n numbers for B examples."""

    @abstractmethod
    def rows(self, some: slice, out: Tensor) -> Tensor:
        """Gradients (b, n) of some of the examples: in `out`, of that shape, where they have to be computed."""

    @abstractmethod
    def parts(self) -> list[Tensor]:
        """All that they are computed from, (B, ...) each: those of an example from its rows of these."""


class NormAndSumForm(GradForm):
    """A term whose norms and weighted sum need no row of the parameter's size, and are computed in float64.

    What is added is rounded toward zero to multiples of a power of two, `step`, where that can be had; products round.
    """

    @abstractmethod
    def square_norms(self) -> Tensor:
        """The square of every example's norm, float64 (B,)."""

    @abstractmethod
    def add(self, weights: Tensor, total: Tensor, step: float) -> None:
        """Add the gradients of the first b examples, each times its weight, float64 (b,), to `total`, float64 (n,)."""


class KernelForm(GradForm):
    """A term that the native kernel computes itself."""

    @abstractmethod
    def enter(self, layers: Layers, at: int, some: slice) -> None:
        """Add some of the examples to the kernel's layers, at coordinate `at` of the sum."""

    def ordered(self, total: Tensor) -> Tensor:
        """What the kernel has summed up, (n,), in the parameter's own order."""
        return total


class DenseRows(GradForm):
    """Gradients that are there: ``values`` (B, ...), n numbers an example."""

    def __init__(self, values: Tensor) -> None:
        self._values = at_least_float32(values.flatten(1) if values.ndim > 1 else values.unsqueeze(1))

    def parts(self) -> list[Tensor]:
        return [self._values]

    def rows(self, some: slice, out: Tensor) -> Tensor:  # noqa: ARG002
        return self._values[some]


def outer_product(x: Tensor, g: Tensor) -> GradForm:
    """The term of a weight (out, in) from x (B, ..., in) and g (B, ..., out): outer products, summed over positions.

    >>> one = outer_product(torch.ones(2, 3), torch.ones(2, 4))
    >>> type(one), type(outer_product(torch.ones(2, 5, 3), torch.ones(2, 5, 4)))
    (<class 'noisette._gradients.grad_forms.OuterProduct'>, <class
    'noisette._gradients.grad_forms.SummedOuterProducts'>)
    """
    x, g = by_position(at_least_float32(x)), by_position(at_least_float32(g))
    (_, positions, width), high = x.shape, g.shape[2]
    if positions == 1:
        return OuterProduct(x.squeeze(1), g.squeeze(1))
    return (
        LargeOuterProducts
        if 2 * positions * (width + high) < width * high > _SMALL and kernel_supports(x)
        else SummedOuterProducts
    )(x, g)


class SummedOuterProducts(GradForm):
    """The sum over positions of outer products: x (B, T, in) and g (B, T, out) for a weight (out, in).

    Terms may cancel over positions, so that norms and sums are right only where the rows are at hand.
    """

    def __init__(self, x: Tensor, g: Tensor) -> None:
        self._x, self._g = x, g

    def parts(self) -> list[Tensor]:
        return [self._x, self._g]

    def rows(self, some: slice, out: Tensor) -> Tensor:
        x, g = self._x[some], self._g[some]
        torch.bmm(g.transpose(1, 2), x, out=out.view(len(g), g.shape[2], x.shape[2]))
        return out


class LargeOuterProducts(NormAndSumForm):
    """The same for a weight that is large beside the number of positions, slice by slice of its outputs.

    Norms come from products over positions, x times x and g times g, which are small here. They need not be right, and
    where terms cancel they are not: each row is brought within the norm that it was said to have when it is added. So
    it need not be there before, nor any other row of its example (docs/theory.md).

    >>> weight = LargeOuterProducts(torch.tensor([[[1.0, 2.0], [0.0, 1.0]]]), torch.tensor([[[1.0], [3.0]]]))
    >>> weight.rows(slice(None), torch.empty(1, 2)), weight.square_norms().round()
    (tensor([[1., 5.]]), tensor([26.], dtype=torch.float64))
    """

    def __init__(self, x: Tensor, g: Tensor) -> None:
        self._x, self._g, self._said = x, g, list[Tensor]()

    def parts(self) -> list[Tensor]:
        return [self._x, self._g]

    def rows(self, some: slice, out: Tensor) -> Tensor:
        for number, (x, g) in enumerate(zip(self._x[some], self._g[some], strict=True)):
            for outputs in self._slices():
                self._row(x, g[:, outputs], self._columns(out, outputs)[number])
        return out

    def square_norms(self) -> Tensor:
        """The square of what is said to be every example's norm, float64 (B,); infinite where its rows may be."""
        found = torch.zeros(len(self._x), dtype=torch.float64)
        for norms in self._norms():  # one after the other: a sum over them would round by the number of examples
            found += norms.square()
        return found

    def add(self, weights: Tensor, total: Tensor, step: float) -> None:
        """Add the rows of the first b examples, each within its norm and times its weight, float64 (b,), to `total`."""
        isa, width = _native.variant(), self._x.shape[2]
        assert isa is not None, "without the kernel all rows are there"
        place = aligned_empty(_FEW, self._high * width, self._x.dtype, self._x.device)
        for outputs, norms in zip(self._slices(), self._norms(), strict=True):
            part = self._columns(total.unsqueeze(0), outputs)[0]
            for start in range(0, len(weights), _FEW):
                some = slice(start, min(start + _FEW, len(weights)))
                rows = place[: some.stop - start, : len(part)]
                for x, g, row in zip(self._x[some], self._g[some], rows, strict=True):
                    self._row(x, g[:, outputs], row)
                _native.native.add_bounded(rows, norms[some], weights[some], step, part, isa)

    def _norms(self) -> list[Tensor]:
        """For each slice what the norms of its rows are said to be, a little more than they are, float64 (B,)."""
        if not self._said:
            inputs = _gram(self._x)
            for outputs in self._slices():
                both = _gram(self._g[:, :, outputs]) * inputs
                largest = both.diagonal(dim1=1, dim2=2).sqrt().sum(dim=1)  # what no sum of these terms exceeds
                square = both.sum(dim=(1, 2)).clamp(min=0) + _SPARE * largest.square()
                self._said.append(torch.where(largest < _LARGEST, square, torch.inf).sqrt())
        return self._said

    def _row(self, x: Tensor, g: Tensor, out: Tensor) -> None:
        torch.mm(g.T, x, out=out.view(g.shape[1], x.shape[1]))

    def _columns(self, rows: Tensor, outputs: slice) -> Tensor:
        """Of rows (b, n), or what is like them, those of some outputs: the same memory."""
        width = self._x.shape[2]
        return rows[:, outputs.start * width : outputs.stop * width]

    @property
    def _high(self) -> int:
        """Outputs of a slice."""
        return max(1, _SLICE // self._x.shape[2])

    def _slices(self) -> list[slice]:
        count = self._g.shape[2]
        return [slice(start, min(start + self._high, count)) for start in range(0, count, self._high)]


class OuterProduct(NormAndSumForm, KernelForm):
    """One outer product an example: x (B, in) and g (B, out) for a weight (out, in).

    The norm is that of x times that of g, and the sum over examples is one matrix product.

    >>> weight = OuterProduct(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 10.0]]))
    >>> weight.rows(slice(None), torch.empty(1, 6))
    tensor([[ 1.,  2.,  3., 10., 20., 30.]])
    >>> weight.square_norms().round()
    tensor([1414.], dtype=torch.float64)
    """

    def __init__(self, x: Tensor, g: Tensor) -> None:
        self._x, self._g = x, g

    def parts(self) -> list[Tensor]:
        return [self._x, self._g]

    def rows(self, some: slice, out: Tensor) -> Tensor:
        x, g = self._x[some], self._g[some]
        torch.mul(g.unsqueeze(2), x.unsqueeze(1), out=out.view(len(g), g.shape[1], x.shape[1]))
        return out

    def square_norms(self) -> Tensor:
        """The square of every example's norm, float64 (B,)."""
        x, g = (torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in (self._x, self._g))
        product: Tensor = x * g
        return product.square_()

    def add(self, weights: Tensor, total: Tensor, step: float) -> None:  # noqa: ARG002 - a product has no rows to round
        """Add all gradients, each times its weight, float64 (B,), to `total`, float64 (n,)."""
        weights, count = weights.unsqueeze(1), len(weights)
        both = self._x[:count], self._g[:count]
        x, g = (torch.where(weights != 0, part, 0.0).double() for part in both)  # zero times NaN is NaN
        total.view(g.shape[1], x.shape[1]).addmm_((g * weights).T, x)

    def enter(self, layers: Layers, at: int, some: slice) -> None:
        """Add some of the examples to the kernel's layers, at coordinate `at` of the sum."""
        layers.linear(self._x[some].contiguous(), self._g[some].contiguous(), at)


class Slice(GradForm):
    """The term of `count` coordinates of a parameter, from `start` on; the others have no gradient here."""

    def __init__(self, term: GradForm, start: int, count: int) -> None:
        self._term, self._span = term, slice(start, start + count)

    def parts(self) -> list[Tensor]:
        return self._term.parts()

    def rows(self, some: slice, out: Tensor) -> Tensor:
        mine = out.zero_()[:, self._span]
        found = self._term.rows(some, mine)
        if found is not mine:
            mine.copy_(found)
        return out


class Sum(GradForm):
    """Several terms of one parameter: a layer that runs twice, or two that share a weight."""

    def __init__(self, terms: Sequence[GradForm]) -> None:
        self._terms = terms

    def parts(self) -> list[Tensor]:
        return [part for term in self._terms for part in term.parts()]

    def rows(self, some: slice, out: Tensor) -> Tensor:
        first, *others = self._terms
        found = first.rows(some, out)
        total = out if found is out else out.copy_(found)
        for other in others:
            total += other.rows(some, aligned_empty(len(out), out.shape[1], out.dtype, out.device))
        return total


def aligned_empty(count: int, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory (count, length) for rows that a matrix product computes, in which all rows lie alike.

    A product rounds by where its result lies, and a row must not depend on its place among others: where terms cancel
    over tokens, last bits are large.

    >>> aligned_empty(3, 5, torch.float32, torch.device("cpu")).stride()
    (16, 1)
    """
    return torch.empty(count, -(-length // _ALIKE) * _ALIKE, dtype=dtype, device=device)[:, :length]


def _gram(values: Tensor) -> Tensor:
    """Products of all positions of an example with each other, (B, T, n) to (B, T, T), in float32 and given as float64.

    One example after the other, so that none is rounded by the company it is in.
    """
    return torch.stack([torch.mm(one, one.T) for one in values]).double()


def at_least_float32(values: Tensor) -> Tensor:
    """Values, which autograd no longer follows, in float32 at least: what autocast has made shorter adds up badly."""
    values = values.detach()
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def by_position(values: Tensor) -> Tensor:
    """Values (B, ..., n) as (B, T, n)."""
    return values.reshape(len(values), -1, values.shape[-1])
