"""The hyperbolic tangent by the kernel, beside numpy's in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from noisette import _native
from tests.support.bucketed import VARIANTS


def tanh(x: Tensor, variant: str, threads: int = 1) -> Tensor:
    out = torch.empty_like(x)
    _native.native.tanh(x, out, threads, variant)
    return out


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_right_to_six_units_in_the_last_place(variant: str) -> None:
    """Of every size, from the least number that there is to the largest; odd to the last bit, and never beyond 1."""
    sizes = np.concatenate([np.linspace(0, 12, 400_001), np.geomspace(1e-45, 3e38, 100_000)]).astype(np.float32)
    expected = np.tanh(sizes.astype(np.float64))
    found = tanh(torch.from_numpy(sizes), variant)
    assert torch.equal(tanh(torch.from_numpy(-sizes), variant), -found)
    units = np.spacing(np.maximum(expected, 1e-45).astype(np.float32))
    assert np.max(np.abs(found.numpy() - expected) / units) <= 6
    assert found.max() == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_not_finite(variant: str) -> None:
    found = tanh(torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0]), variant)
    assert found[:2].tolist() == [1, -1]
    assert found[2].isnan()
    assert found[3].signbit()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 37, 200_003])
def test_a_number_does_not_depend_on_its_place(variant: str, count: int) -> None:
    """Nor on how many threads there are."""
    x = torch.randn(count, generator=torch.Generator().manual_seed(1))
    found = tanh(x, variant)
    assert torch.equal(found, tanh(x.flip(0), variant).flip(0))
    assert torch.equal(found, tanh(x, variant, threads=3))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"out": torch.empty(3)}, "same length"),
        ({"isa": "none"}, "instruction set"),
        ({"threads": 0}, "one thread"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object], told: str) -> None:
    given = {"x": torch.zeros(2), "out": torch.empty(2), "threads": 1, "isa": "plain"} | changed
    with pytest.raises(ValueError, match=told):
        _native.native.tanh(**given)
