"""`Private` adds and hides; it never carries a graph back to private data."""

from __future__ import annotations

import pytest
import torch

from noisette import Private
from noisette.errors import InvalidInput
from tests.support.helpers import refused


def test_adds_in_float64_and_does_not_print_values() -> None:
    total = Private(torch.full((2,), 0.1, dtype=torch.float32)) + Private(torch.tensor([1234.5, 2.0]))
    assert total.unsafe_values().dtype == torch.float64
    assert total.dim == 2
    for text in (repr(total), str(total), f"{total}"):
        assert text == "Private(dim=2)"
    assert not hasattr(total, "__dict__")


def test_refuses_what_does_not_fit() -> None:
    with refused(InvalidInput, "shape"):
        Private(torch.zeros(2, 2))
    with refused(InvalidInput, "do not add"):
        _ = Private(torch.zeros(2)) + Private(torch.zeros(3))
    with pytest.raises(TypeError):
        _ = Private(torch.zeros(2)) + torch.zeros(2)
    with pytest.raises(TypeError):
        float(Private(torch.zeros(1)))  # type: ignore[arg-type]


def test_no_graph_leads_back() -> None:
    """A gradient function on a sum would hold the private tensors that made it."""
    rows = torch.ones(3, requires_grad=True)
    assert not Private(rows * 2).unsafe_values().requires_grad
