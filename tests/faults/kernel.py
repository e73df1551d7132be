"""Faults inside the native kernel, planted at its door: what it is given is changed, or what it gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from noisette import _native
from noisette._gradients.probe import IsolationProbe
from noisette._native import cpu
from tests.faults.table import by, fault
from tests.unit._gradients import test_lookup, test_native_activations
from tests.unit._gradients import test_native_pooling as test_pooled
from tests.unit._native import test_conv_forward, test_fused, test_pooling, test_tanh

LEFT_OUT = by(test_fused.test_no_derivative_but_zero_is_left_out, variant="plain")
LOOKED_UP = by(test_lookup.test_the_kernel_adds_what_torch_adds, kind="words", variant="plain")


@fault("derivatives left out of a convolution: in the places where another example has none", LEFT_OUT)
def places_of_another(patch: pytest.MonkeyPatch) -> None:
    class Layers(_native.native.Layers):  # type: ignore[misc]
        def conv(self, x: Tensor, g: Tensor, *how: Any) -> None:
            super().conv(x, torch.where(g.roll(1, 0) != 0, g, 0.0), *how)

    patch.setattr(cpu, "new_layers", Layers)


@fault("derivatives left out of a convolution: those that are small", LEFT_OUT)
def small_as_zero(patch: pytest.MonkeyPatch) -> None:
    class Layers(_native.native.Layers):  # type: ignore[misc]
        def conv(self, x: Tensor, g: Tensor, *how: Any) -> None:
            super().conv(x, torch.where(g.abs() > 1e-12, g, 0.0), *how)

    patch.setattr(cpu, "new_layers", Layers)


@fault(
    "derivatives left out of a convolution: zeros that meet infinity",
    by(test_fused.test_a_convolution_of_what_is_not_finite_counts_as_zero, bad=torch.nan),
    by(test_fused.test_a_convolution_of_what_is_not_finite_counts_as_zero, bad=torch.inf),
)
def zero_times_infinity(patch: pytest.MonkeyPatch) -> None:
    class Layers(_native.native.Layers):  # type: ignore[misc]
        def conv(self, x: Tensor, g: Tensor, *how: Any) -> None:
            super().conv(torch.where(x.isfinite(), x, 0.0), g, *how)

    patch.setattr(cpu, "new_layers", Layers)


@fault("rows of a table in the kernel: the last position of a row counts alone", LOOKED_UP)
def last_of_a_row(patch: pytest.MonkeyPatch) -> None:
    class LookedUp(_native.native.LookedUp):  # type: ignore[misc]
        def __init__(self, index: Tensor, g: Tensor, *rest: Any) -> None:
            named = index.unsqueeze(2) == index.unsqueeze(1)  # (B, T, T)
            again = named.triu(diagonal=1).any(dim=2, keepdim=True)
            super().__init__(index, torch.where(again, 0.0, g), *rest)

    patch.setattr(_native.native, "LookedUp", LookedUp)


@fault("rows of a table in the kernel: a norm without cross terms", LOOKED_UP)
def norms_of_positions(patch: pytest.MonkeyPatch) -> None:
    class LookedUp(_native.native.LookedUp):  # type: ignore[misc]
        def __init__(self, index: Tensor, g: Tensor, rows: int, squares: Tensor, isa: str) -> None:
            super().__init__(index, g, rows, squares, isa)
            squares.copy_(g.double().square().sum(dim=(1, 2)))

    patch.setattr(_native.native, "LookedUp", LookedUp)


@fault("rows of a table in the kernel: a weight of zero that lets NaN through", LOOKED_UP)
def zero_counts(patch: pytest.MonkeyPatch) -> None:
    class LookedUp(_native.native.LookedUp):  # type: ignore[misc]
        def add(self, weights: Tensor, step: float, total: Tensor) -> None:
            super().add(weights.clamp(min=1e-300), step, total)

    patch.setattr(_native.native, "LookedUp", LookedUp)


@fault(
    "a max-pool that reaches into the next example",
    by(test_pooled.test_an_example_is_pooled_alone),
    by(test_pooling.test_windows_are_those_of_torch, variant="plain", name="overlapping", kind="distinct", threads=1),
)
def pools_mixed(patch: pytest.MonkeyPatch) -> None:
    honest = _native.native.pool
    patch.setattr(_native.native, "pool", lambda x, *rest: honest(torch.maximum(x, x.roll(1, 0)).contiguous(), *rest))


@fault(
    "a max-pool whose derivative goes to the last of equals",
    by(test_pooled.test_the_derivative_of_ties_goes_to_the_first),
    by(test_pooling.test_windows_are_those_of_torch, variant="plain", name="side by side", kind="ties", threads=1),
)
def last_of_equals(patch: pytest.MonkeyPatch) -> None:
    honest = _native.native.pool

    def wrong(x: Tensor, out: Tensor, taps: Tensor, kernel: list[int], *rest: Any) -> None:
        honest(x, out, taps, kernel, *rest)
        taps.copy_(kernel[0] * kernel[1] - 1 - taps)

    patch.setattr(_native.native, "pool", wrong)


@fault(
    "a hyperbolic tangent that sees the next example",
    by(test_native_activations.test_an_example_is_alone),
    by(test_tanh.test_a_number_does_not_depend_on_its_place, variant="plain", count=37),
)
def tangents_mixed(patch: pytest.MonkeyPatch) -> None:
    honest = _native.native.tanh
    patch.setattr(_native.native, "tanh", lambda x, *rest: honest(x + 1e-6 * x.roll(1), *rest))


@fault(
    "a hyperbolic tangent with the derivative of another function",
    by(test_native_activations.test_all_orders_and_precisions, dtype=torch.float32, apart=1e-6),
    by(test_native_activations.test_gradients_are_those_of_autograd, name="a layer", kernel=""),
)
def tangents_derived_wrong(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IsolationProbe, "agrees", lambda self, way: True)
    patch.setattr(
        "noisette._gradients.native_activations._Tangent.backward",
        staticmethod(lambda ctx, g: (g * (1 - ctx.saved_tensors[0]), None)),
    )


@fault(
    "a first convolution without its bias",
    by(test_conv_forward.test_numbers_are_those_of_torch, variant="plain", name="of MNIST"),
    by(test_conv_forward.test_gradients_are_those_of_autograd, bias=True, kernel="", mode="zeros"),
)
def filters_without_bias(patch: pytest.MonkeyPatch) -> None:
    honest = _native.native.filter
    patch.setattr(IsolationProbe, "agrees", lambda self, way: True)
    patch.setattr(
        _native.native, "filter", lambda x, weight, bias, *rest: honest(x, weight, torch.zeros_like(bias), *rest)
    )


@fault(
    "a first convolution that leaves a bit of every example to the next",
    by(test_conv_forward.test_numbers_are_those_of_torch, variant="plain", name="3x3"),
)
def filters_that_remember(patch: pytest.MonkeyPatch) -> None:
    honest = _native.native.filter

    def wrong(x: Tensor, *rest: Any) -> None:
        honest(x + 1e-7 * x.roll(1, 0), *rest)

    patch.setattr(_native.native, "filter", wrong)
