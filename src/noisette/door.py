"""The only door from `Private` to `Released`."""

from __future__ import annotations

from noisette.errors import InvalidInput
from noisette.generator import Generator
from noisette.grid import Grid
from noisette.mechanism import Mechanism
from noisette.private import Private, Released

__all__ = ["release"]


def release(mechanism: Mechanism, private_sum: Private, *, generator: Generator, grid: Grid | None = None) -> Released:
    """`private_sum` plus one draw of the mechanism's noise on every coordinate.

    With a `grid`, which the rows of the sum were rounded to as well, the release lies on it, and its low bits say no
    more than the rest. Without one they may: see sharp edges.

    **Formal guarantees.** With a generator that has no seed, one call is one step of `mechanism`, as accounted.

    >>> import torch
    >>> from noisette import L2, Gaussian
    >>> mechanism = Mechanism(L2(dim=3), Gaussian(scale=1.0), rate=0.1, steps=1)
    >>> release(mechanism, mechanism.encoder.encode_sum(torch.randn(5, 3)), generator=Generator()).values.shape
    torch.Size([3])
    """
    if not isinstance(private_sum, Private):
        raise InvalidInput(
            f"a {type(private_sum).__name__} is not a private sum.", hint="pass encoder.encode_sum(rows)"
        )
    if private_sum.dim != mechanism.encoder.dim:
        raise InvalidInput(
            f"a sum of {private_sum.dim} coordinates does not fit an encoder of dimension {mechanism.encoder.dim}.",
            hint="use the mechanism's own encoder",
        )
    values = private_sum.unsafe_values()
    noise = mechanism.noise.sample((private_sum.dim,), generator, values.device)
    noised = noise.add_(values) if grid is None else grid.noised(values, noise)
    return Released(noised, mechanism.noise, generator.reproducible)
