"""The only door from `Private` to `Released`."""

from __future__ import annotations

from noisette._private import Private, Released
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism
from noisette.random import Generator

__all__ = ["release"]

_BLOCK = 1 << 16  # coordinates at a time: few calls, and what they need stays in the cache


def release(mechanism: Mechanism, private_sum: Private, *, generator: Generator) -> Released:
    """`private_sum` plus one draw of the mechanism's noise on every coordinate, on the mechanism's `Grid`.

    The sum is used up: a second release of it would be another step. Noise is added in its place, a block at a time,
    and nobody holds that place before the last block is done; where something goes wrong on the way, it is wiped.

    **Formal guarantees.** With a generator that has no seed, one call is one step of `mechanism`, as accounted. The low
    bits of a release say no more than the rest of it.

    >>> import torch
    >>> from noisette.encoders import L2
    >>> from noisette.noise import Gaussian
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
    grid, noise = mechanism.grid, mechanism.noise
    values = private_sum.unsafe_consume()
    size = _BLOCK if values.device.type == "cpu" else len(values)
    try:
        for start in range(0, len(values), size):
            total = values[start : start + size]
            total.copy_(grid.add_noise(total, noise.sample((len(total),), generator, values.device)))
    except BaseException:
        values.zero_()  # whoever catches this can look into our frame
        raise
    return Released(values, noise, generator.reproducible)
