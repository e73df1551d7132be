"""Rows of a table by the kernel, beside torch: the same to the last bit."""

from __future__ import annotations

import pytest
import torch

from noisette import _native
from noisette._gradients.lookup import EmbeddingRows
from tests.support.bucketed import VARIANTS

STEP = 2.0**-27


def looked_up(kind: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """An index (B, T), derivatives (B, T, width) and the number of rows, of several kinds."""
    generator = torch.Generator().manual_seed(seed)
    examples, positions, width, rows = {"words": (7, 33, 19, 50), "one": (3, 1, 1, 2), "same": (5, 64, 8, 1)}[kind]
    index = torch.randint(rows, (examples, positions), generator=generator)
    g = torch.randn(examples, positions, width, generator=generator)
    return index, g * 10.0 ** torch.randint(-6, 7, (examples, positions, 1), generator=generator), rows


@pytest.mark.parametrize("kind", ["words", "one", "same"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_kernel_adds_what_torch_adds(kind: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for fewer weights than examples, with a row of NaN that counts nothing, and on top of a sum."""
    index, g, rows = looked_up(kind)
    g[1, 0] = torch.nan
    weights = torch.tensor([0.3, 0.0]).double()
    found = []
    for way in (variant, "off"):
        monkeypatch.setenv("NOISETTE_KERNEL", way)
        table, total = EmbeddingRows(index, g, rows), torch.full((rows * g.shape[2],), 3 * STEP, dtype=torch.float64)
        squares = table.square_norms()
        for _ in range(2):
            table.add(weights, total, STEP)
        found.append((squares, total))
    (squares, total), (expected, reference) = found
    assert torch.equal(total, reference)
    assert torch.isnan(squares[1])
    torch.testing.assert_close(squares, expected, rtol=1e-12, atol=0, equal_nan=True)
    assert (total != 3 * STEP).any()


def test_an_index_outside_is_refused() -> None:
    index, g, rows = looked_up("words")
    index[2, 3] = rows
    squares = torch.empty(len(g), dtype=torch.float64)
    for isa, changed in (("plain", index), ("plain", -index), ("none", index.clamp(max=rows - 1))):
        with pytest.raises(ValueError, match=r"outside|instruction set"):
            _native.native.LookedUp(changed, g, rows, squares, isa)
