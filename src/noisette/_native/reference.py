"""The torch reference of the encoders: simple, exact, on any device. Native kernels are held to it.

Shapes: `rows` (B, d) float64 and finite; `levels` (n, K) and `counts` (K,) of one block of a profile family.
Each function returns the bound psi of every coordinate, (B, d); the encoders clip or snap to it.
"""

from __future__ import annotations

import torch

from noisette._quantization import MAX_DIM

_MANTISSA_BITS_DROPPED = 17  # of a float32: exponent and 6 bits of mantissa name the bucket
_BUCKETS = 1 << (32 - 1 - _MANTISSA_BITS_DROPPED)


def finite_rows(rows: torch.Tensor) -> torch.Tensor:
    """`rows` as float64, with every row that holds a NaN or an infinity replaced by zeros."""
    rows = rows.double()
    finite = torch.isfinite(rows).all(dim=1, keepdim=True)
    return torch.where(finite, rows, 0.0)


def allowed(radius: float) -> float:
    """The norm that every clipping aims at, so that no clipped vector is longer than `radius`.

    The margin covers the rounding of a norm in float64, summed in any order, of `grid.LONGEST` squares.
    """
    return radius * (1 - 2 * MAX_DIM * 2.0**-53)


def scaled_norms(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of each row divided by its largest magnitude, and that magnitude, (B, 1) both: neither overflows."""
    largest = _largest(rows.abs().amax(dim=1, keepdim=True))
    return torch.linalg.vector_norm(rows / largest, dim=1, keepdim=True), largest


def clip_norm(rows: torch.Tensor, radius: float) -> torch.Tensor:
    """Rows scaled down to norm `radius` where longer."""
    norm, largest = scaled_norms(rows)
    longer = norm * largest > allowed(radius)
    return torch.where(longer, rows / largest * (allowed(radius) / norm), rows)


def exact_bounds(rows: torch.Tensor, levels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The paper's Algorithm 2: rank by magnitude, choose the profile of the highest cosine, psi at that rank."""
    magnitudes, order = rows.abs().sort(dim=1, stable=True)
    sums = _block_sums(magnitudes / _largest(magnitudes[:, -1:]), counts)
    chosen = levels[_choose(sums, levels, counts)]
    by_rank = chosen.repeat_interleave(counts, dim=1)
    return torch.empty_like(rows).scatter_(1, order, by_rank)


def bucket_bounds(rows: torch.Tensor, levels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """O(d), without a sort: every coordinate gets psi at the lowest rank of its bucket of magnitudes.

    The lowest rank of a bucket is at most the exact rank, so this stays inside the exact bound by construction.
    """
    singles = rows.abs().float()
    keys = (singles.view(torch.int32) >> _MANTISSA_BITS_DROPPED).long()
    histogram = torch.zeros(len(rows), _BUCKETS, dtype=torch.int64, device=rows.device)
    histogram.scatter_add_(1, keys, torch.ones_like(keys))
    below = histogram.cumsum(dim=1) - histogram
    edges = torch.arange(_BUCKETS, dtype=torch.int32, device=rows.device) << _MANTISSA_BITS_DROPPED
    sizes = (
        torch.nan_to_num(edges.view(torch.float32), nan=torch.inf).clamp(max=torch.finfo(torch.float32).max).double()
    )
    top = _largest(torch.where(histogram > 0, sizes, 0.0).amax(dim=1, keepdim=True))
    mass = histogram * (sizes / top)
    ends = counts.cumsum(0).expand(len(rows), -1).contiguous()
    bucket = torch.searchsorted(below, ends - 1, right=True) - 1
    upto = (mass.cumsum(dim=1) - mass).gather(1, bucket) + (ends - below.gather(1, bucket)) * (sizes / top).gather(
        1, bucket
    )
    sums = torch.diff(upto, dim=1, prepend=torch.zeros_like(upto[:, :1]))
    chosen = levels[_choose(sums, levels, counts)]
    rank_level = torch.repeat_interleave(torch.arange(len(counts), device=rows.device), counts)
    return chosen.gather(1, rank_level[below.gather(1, keys)])


def _block_sums(magnitudes: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """(B, K) sums of sorted magnitudes over each profile block: all that a cosine needs."""
    totals = magnitudes.cumsum(dim=1)[:, counts.cumsum(0) - 1]
    return torch.diff(totals, dim=1, prepend=torch.zeros_like(totals[:, :1]))


def _choose(sums: torch.Tensor, levels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Index of the profile of the highest cosine, (B,).

    The paper prints argmin of psi.g / (|psi||g|). That is a similarity, not the cosine distance of its equation for
    the encoding, so the nearest profile is the argmax.
    """
    if len(levels) == 1:
        return torch.zeros(len(sums), dtype=torch.long, device=sums.device)
    norms = (levels * levels @ counts.double()).sqrt()
    return (sums.unsqueeze(1) * (levels / norms[:, None])).sum(dim=2).argmax(dim=1)


def _largest(column: torch.Tensor) -> torch.Tensor:
    return column.clamp(min=torch.finfo(torch.float64).tiny)
