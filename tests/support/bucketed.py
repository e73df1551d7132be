"""What the native kernel must give for one example, computed with the torch reference."""

from __future__ import annotations

import math

import numpy as np
import torch

from noisette import Encoder, _native
from noisette._native import cpu, reference
from noisette._quantization import toward_zero
from noisette.encoders import Snap
from noisette.encoders._rank_based import SortedProfile
from noisette.encoders.profiles import ProfileSet
from tests.support.helpers import adversarial_rows, by_rank, ordinary_rows

VARIANTS = _native._variants()
MOST_LEVELS = 1024  # a profile with more is rounded down to so many


def kernel_sum(encoder: Encoder, rows: torch.Tensor) -> torch.Tensor:
    """The encoded sum, float64 (d,), by the variant that runs now: never by the reference."""
    kernel = encoder.kernel()
    assert kernel is not None
    return kernel.rows_sum(rows)


def alone(encoder: Encoder, rows: torch.Tensor) -> torch.Tensor:
    """The kernel's encoding of every row by itself, float64 (B, d)."""
    return torch.stack([kernel_sum(encoder, row[None]) for row in rows])


def hard_rows(dim: int, seed: int = 0) -> list[tuple[str, torch.Tensor]]:
    """Named float32 batches: ordinary ones, adversarial ones, and what is adversarial in 32 bits only."""
    rng = np.random.default_rng(seed)
    normal = torch.from_numpy(rng.standard_normal((8, dim))).float()
    tiny, largest = torch.tensor(2.0**-149), torch.finfo(torch.float32).max
    named = [("ordinary", ordinary_rows(40, dim, seed))]
    named += [(name, rows[:8]) for name, rows in adversarial_rows(dim, seed)]
    named += [
        ("smallest denormals", normal.sign() * tiny),
        ("around the first bucket", normal.sign() * 2.0**-132 * torch.from_numpy(rng.uniform(0.5, 1.5, (8, dim)))),
        ("largest 32-bit floats", normal.sign() * largest),
        ("every power of two", 2.0 ** torch.from_numpy(rng.integers(-149, 128, (8, dim))).float()),
        ("edges of buckets", (1 + torch.from_numpy(rng.integers(0, 64, (8, dim))) / 64) * normal.sign()),
        ("just below edges", torch.nextafter((1 + (normal * 64).round() / 64), torch.tensor(0.0))),
        ("mostly zeros", normal * (torch.from_numpy(rng.uniform(size=(8, dim))) < 0.1)),
        ("last coordinate only", torch.eye(dim)[-1:] * -3.0),
        ("not contiguous", ordinary_rows(dim, 8, seed).T),
    ]
    return [(name, rows.float()) for name, rows in named]


def lowest_ranks(rows: torch.Tensor) -> torch.Tensor:
    """The lowest rank in its bucket of every coordinate of finite rows (B, d); a bucket is exponent and 6 bits."""
    keys = rows.float().abs().view(torch.int32) >> 17
    keys = keys.contiguous()
    return torch.searchsorted(keys.sort(dim=1).values, keys)


def single_levels(block: ProfileSet) -> torch.Tensor:
    """The kernel's levels by rank, (n, d): at most 1024 of each profile, in float32 rounded toward zero."""
    levels, starts = cpu.compact(block)
    assert levels.shape[1] <= MOST_LEVELS
    assert (levels.shape[1] == block.levels.shape[1]) == (block.levels.shape[1] <= MOST_LEVELS)
    with np.errstate(over="ignore"):
        single = levels.astype(np.float32)
    single = np.where(single > levels, np.nextafter(single, np.float32(0)), single)
    return torch.from_numpy(np.repeat(single.astype(np.float64), np.diff(starts, append=block.dim), axis=1))


def unexplained(encoder: SortedProfile, rows: torch.Tensor, encoded: torch.Tensor, lost: float = 1e-3) -> list[str]:
    """What is wrong with kernel encodings (B, d) of float32 rows (B, d). Empty when all is well.

    In every block each must be, bit for bit, the bucketed encoding with some profile, the cosine of which is at most
    `lost` below the best one. Which profile suits a row of denormals is not promised: the lowest bucket holds most.
    """
    rows = reference.finite_rows(rows)
    faults, start = [], 0
    for number, block in enumerate(encoder.blocks):
        part, found = rows[:, start : start + block.dim], encoded[:, start : start + block.dim]
        start += block.dim
        cosine, ranks = _cosines(block, part), lowest_ranks(part)
        free = part.abs().amax(dim=1) < torch.finfo(torch.float32).tiny
        good = torch.zeros(len(rows), dtype=torch.bool)
        for profile, levels in enumerate(single_levels(block)):
            bounds = levels[ranks] if isinstance(encoder, Snap) else torch.minimum(part.abs(), levels[ranks])
            same = (found == toward_zero(part.sign() * bounds, encoder.quantum)).all(dim=1)
            good |= same & (free | (cosine[:, profile] >= cosine.amax(dim=1) - lost))
        if not good.all():
            faults.append(f"{int((~good).sum())} of {len(rows)} rows in block {number}")
    return faults


def _cosines(block: ProfileSet, rows: torch.Tensor) -> torch.Tensor:
    """Of each row's sorted magnitudes with each profile, (B, n); zero for a zero row."""
    magnitudes = rows.abs().sort(dim=1).values
    magnitudes = magnitudes / magnitudes.norm(dim=1, keepdim=True).clamp(min=math.ulp(0.0))
    profiles = torch.from_numpy(by_rank(block))
    return magnitudes @ (profiles / profiles.norm(dim=1, keepdim=True)).T
