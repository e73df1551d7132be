"""Faults of layer rules and terms: gradients that are wrong, or norms that let a gradient out of the ball."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from peft.tuners.lora import layer as lora
from torch import Tensor, nn

from noisette import _native
from noisette._gradients import batch_invariance, batched_layers, chunk_policy, fused_clip, layer_strategy, rules
from noisette._gradients import grad_forms as terms_module
from noisette._gradients.grad_forms import (
    DenseRows,
    GradForm,
    LargeOuterProducts,
    NormAndSumForm,
    OuterProduct,
    Sum,
    SummedOuterProducts,
)
from noisette._gradients.lookup import EmbeddingRows
from noisette._gradients.probe import IsolationProbe
from noisette._gradients.rules import base, embedding, linear
from tests.faults.table import by, fault
from tests.integrations import test_transformer_models
from tests.promises import test_gradient_memory
from tests.unit._gradients import test_fused_clip, test_grad_forms, test_wide
from tests.unit._gradients.rules import test_rules, test_uses

VECTORS = by(test_rules.test_every_rule, name="Linear, a vector, bias=True")
SEQUENCES = by(test_rules.test_every_rule, name="Linear, a sequence, bias=True")


@fault("a rule that forgets the bias", VECTORS, SEQUENCES)
def no_bias(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(linear, "summed", lambda g: DenseRows(torch.zeros(len(g), g.shape[-1], dtype=g.dtype)))


@fault("a sum over the wrong axis", VECTORS, SEQUENCES)
def over_outputs(patch: pytest.MonkeyPatch) -> None:
    """Over outputs instead of positions; the shape is right."""

    def wrong(g: Tensor) -> DenseRows:
        flat = g.flatten(1, -2) if g.ndim > 2 else g.unsqueeze(1)
        return DenseRows(flat.sum(dim=2).mean(dim=1, keepdim=True).expand(-1, g.shape[-1]))

    patch.setattr(linear, "summed", wrong)


@fault(
    "a sum over the wrong axis: of a product",
    by(test_grad_forms.test_every_form, name="products"),
    SEQUENCES,
)
def all_positions(patch: pytest.MonkeyPatch) -> None:
    """Every position's input meets every position's derivative."""

    def rows(self: SummedOuterProducts, some: slice, out: Tensor) -> Tensor:
        x, g = self._x[some].sum(dim=1), self._g[some].sum(dim=1)
        return out.copy_(torch.einsum("bo,bi->boi", g, x).flatten(1))

    patch.setattr(SummedOuterProducts, "rows", rows)


@fault(
    "padding_idx missed",
    by(test_rules.test_every_rule, name="Embedding, (6,), padding_idx=2"),
    by(test_rules.test_any_table, heavy=True),
)
def padding_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(embedding, "EmbeddingRows", lambda index, g, count, padding: EmbeddingRows(index, g, count))


@fault("padding_idx missed: in a table's term", by(test_grad_forms.test_every_form, name="lookup with padding"))
def padding_kept(patch: pytest.MonkeyPatch) -> None:
    honest = EmbeddingRows.__init__
    patch.setattr(EmbeddingRows, "__init__", lambda self, index, g, count, padding=None: honest(self, index, g, count))


@fault(
    "the second call of a layer missed",
    by(test_uses.test_rows_are_those_of_autograd, name="a layer that runs twice"),
    by(test_uses.test_rows_are_those_of_autograd, name="a table that is also the output layer"),
    by(test_uses.test_encoded_sums_are_those_of_rows, name="a table that is also the output layer"),
    by(test_uses.test_every_use_of_a_tied_weight_is_a_term),
    by(test_transformer_models.test_every_model, name="gpt2", attention="eager"),
)
def first_call_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layer_strategy, "Sum", lambda terms: terms[0])
    patch.setattr(IsolationProbe, "agrees", lambda self, way: True)


class _Apart(Sum, NormAndSumForm):
    """Terms of one parameter as if they were those of several: squares of norms add up, and so do sums."""

    def square_norms(self) -> Tensor:
        return sum((_rows(term).double().square().sum(dim=1) for term in self._terms), torch.zeros(()))

    def add(self, weights: Tensor, total: Tensor, step: float) -> None:
        for term in self._terms:
            total += weights @ _rows(term).double()[: len(weights)]


def _rows(term: GradForm) -> Tensor:
    if isinstance(term, OuterProduct):
        return torch.einsum("bo,bi->boi", term._g, term._x).flatten(1)
    if isinstance(term, SummedOuterProducts):
        return torch.einsum("bto,bti->boi", term._g, term._x).flatten(1)
    if isinstance(term, EmbeddingRows):
        out = torch.empty(len(term._g), term._count * term._g.shape[2])
        return term.rows(slice(None), out)
    return term.rows(slice(None), torch.empty(0))


@fault(
    "a norm without cross terms",
    by(test_uses.test_encoded_sums_are_those_of_rows, name="a layer that runs twice"),
    by(test_uses.test_encoded_sums_are_those_of_rows, name="a table that is also the output layer"),
    by(test_fused_clip.test_norms_of_tied_weights_have_their_cross_terms),
)
def squares_added(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layer_strategy, "Sum", _Apart)


@fault(
    "a frozen parameter that gets a gradient",
    by(test_uses.test_a_frozen_parameter_gets_no_term, name="a frozen weight"),
    by(test_uses.test_a_frozen_parameter_gets_no_term, name="a frozen layer before"),
    by(test_uses.test_frozen_layers_leave_no_place_in_the_graph),
)
def frozen_too(patch: pytest.MonkeyPatch) -> None:
    def note(self: Any, out: Tensor, **terms: Callable[[Tensor], GradForm]) -> Tensor:
        held = {name: self._find(name.replace("__", ".")) for name in terms}
        return self._sites.noted(out, {p: terms[name] for name, p in held.items() if p is not None}, self._inputs)

    patch.setattr(batched_layers._Use, "note", note)


@fault(
    "a LoRA layer whose scaling is missed",
    by(test_transformer_models.test_adapters, name="bert"),
    by(test_transformer_models.test_adapters, name="gpt2"),
)
def unscaled(patch: pytest.MonkeyPatch) -> None:
    """The fast way multiplies every adapter by one, and nobody compares it with one example alone."""
    honest = layer_strategy.Layers._total

    def total(self: layer_strategy.Layers, *given: Any) -> Tensor:
        adapted = [m for m in self._aim.model.modules() if isinstance(m, lora.LoraLayer)]
        before = [dict(m.scaling) for m in adapted]
        try:
            for m in adapted:
                m.scaling.update(dict.fromkeys(m.scaling, 1.0))
            return honest(self, *given)
        finally:
            for m, was in zip(adapted, before, strict=True):
                m.scaling.update(was)

    patch.setattr(layer_strategy.Layers, "_total", total)
    patch.setattr(IsolationProbe, "agrees", lambda self, way: True)


class _Gram(SummedOuterProducts, NormAndSumForm):
    """Norms from products of all pairs of positions, and one float32 product for the sum over a whole chunk."""

    def square_norms(self) -> Tensor:
        pairs = (self._x @ self._x.transpose(1, 2)) * (self._g @ self._g.transpose(1, 2))
        return pairs.sum(dim=(1, 2)).double().clamp(min=0)

    def add(self, weights: Tensor, total: Tensor, step: float) -> None:
        scaled = self._g * weights.to(self._g).view(-1, 1, 1)
        total += (scaled.flatten(0, 1).T @ self._x.flatten(0, 1)).flatten()


@fault(
    "a weighted sum in float32 over a whole chunk",
    by(test_fused_clip.test_terms_that_cancel_over_tokens_stay_within_the_radius, form="products", ratio=1e7),
    by(test_fused_clip.test_one_example_among_others_that_cancel, ratio=1e7),
    by(test_grad_forms.test_products_are_factored_only_where_nothing_cancels),
)
def by_pairs(patch: pytest.MonkeyPatch) -> None:
    for module in (test_fused_clip, test_grad_forms, terms_module):
        patch.setattr(module, "SummedOuterProducts", _Gram)


class _Sum32(_Gram):
    """The right norms, in float64, and the same sum."""

    def square_norms(self) -> Tensor:
        return torch.einsum("bto,bti->boi", self._g.double(), self._x.double()).square().sum(dim=(1, 2))


@fault(
    "a weighted sum in float32 over a whole chunk: with the right norms",
    by(test_fused_clip.test_one_example_among_others_that_cancel, ratio=1e7),
)
def right_norms(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(test_fused_clip, "SummedOuterProducts", _Sum32)


@fault(
    "rows of a large weight as long as they are, whatever was said of them",
    by(test_wide.test_norms_that_are_wrong_let_nobody_out, off=1e-3),
)
def unbounded(patch: pytest.MonkeyPatch) -> None:
    honest = _native.native.add_bounded
    patch.setattr(
        _native.native, "add_bounded", lambda v, bounds, *rest: honest(v, torch.full_like(bounds, torch.inf), *rest)
    )


@fault(
    "a norm of the first slice of a large weight alone",
    by(test_wide.test_rows_and_norms_are_those_of_products),
    by(test_wide.test_one_example_stays_within_the_radius, scale=1.0),
)
def first_slice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terms_module, "_SLICE", 32)
    patch.setattr(LargeOuterProducts, "square_norms", lambda self: self._norms()[0].square())


@fault(
    "norms of a large weight that nobody compares",
    by(test_wide.test_norms_that_depend_on_the_company_are_noticed),
)
def unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_invariance, "LargeOuterProducts", EmbeddingRows)


@fault(
    "copies shared between examples",
    by(test_uses.test_rows_are_those_of_autograd, name="bare parameters"),
    by(test_uses.test_rows_are_those_of_autograd, name="a weight used outside of its layer"),
    by(test_uses.test_copies_are_not_shared_between_examples),
)
def one_copy(patch: pytest.MonkeyPatch) -> None:
    """All examples meet one copy, and each gets its share of the gradient of all."""
    honest = layer_strategy.DenseRows

    def shared(gradient: Tensor) -> DenseRows:
        return honest(gradient.mean(dim=0, keepdim=True).expand_as(gradient))

    patch.setattr(layer_strategy, "DenseRows", shared)


@fault(
    "gradients of a whole chunk held at a time",
    by(test_gradient_memory.test_of_large_models_one_gradient_is_held, kind="L2"),
    by(test_gradient_memory.test_of_large_models_one_gradient_is_held, kind="rows"),
)
def all_at_hand(patch: pytest.MonkeyPatch) -> None:
    for module in (fused_clip, chunk_policy, layer_strategy):
        patch.setattr(module, "rows_at_a_time", lambda dim: 64)


@fault(
    "rows that depend on their place",
    by(test_fused_clip.test_a_row_does_not_depend_on_its_place, form="products"),
    by(test_fused_clip.test_a_row_does_not_depend_on_its_place, form="patches"),
    by(test_fused_clip.test_one_example_among_others_that_cancel, ratio=1e7),
)
def not_alike(patch: pytest.MonkeyPatch) -> None:
    """With products that round by where a row lies, as those of MKL do on processors with AVX2 and not with AVX-512."""
    patch.setattr(terms_module, "_ALIKE", 1)
    honest = torch.bmm

    def by_place(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        honest(a, b, out=out)
        for row, most in zip(out, honest(a.abs(), b.abs()), strict=True):
            row.add_(most * 2.0**-23 * (row.data_ptr() % 64 / 64))
        return out

    patch.setattr(torch, "bmm", by_place)


@fault(
    "a weight of zero that lets NaN through",
    by(test_grad_forms.test_a_weight_of_zero_leaves_an_example_out_whatever_it_is, where="x", bad=torch.nan),
    by(test_fused_clip.test_an_example_that_is_not_finite_counts_as_zero, where="x", bad=torch.inf),
)
def times_zero(patch: pytest.MonkeyPatch) -> None:
    def add(self: OuterProduct, weights: Tensor, total: Tensor, step: float) -> None:
        g = self._g.double() * weights.unsqueeze(1)
        total.view(g.shape[1], -1).addmm_(g.T, self._x.double())

    patch.setattr(OuterProduct, "add", add)


@fault(
    "a rule for whatever inherits from a layer",
    by(test_rules.test_only_the_classes_themselves_have_a_rule),
    by(test_rules.test_a_class_of_its_own_goes_the_general_way),
)
def by_inheritance(patch: pytest.MonkeyPatch) -> None:
    def find(layer: nn.Module) -> Any:
        names: Iterable[str] = (base._name(kind) for kind in type(layer).__mro__)
        return next((base._RULES[name] for name in names if name in base._RULES), None)

    patch.setattr(layer_strategy, "find", find)
    patch.setattr(rules, "find", find)
    patch.setattr(IsolationProbe, "agrees", lambda self, way: True)
