"""A toy model whose gradient is its input, and the example that moves the sum as far as the image allows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisette.encoders import Encoder, Image
from noisette.encoders.profiles import ProfileSet
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism
from noisette.noise import Noise
from noisette.random import Generator
from noisette.sampling import UNIT
from noisette.training import make_private

__all__ = ["Array", "Neighbours", "Separation", "in_image", "neighbours", "releases"]

Array = npt.NDArray[np.float64]

_BEYOND = 8.0  # how far the canary's gradient lies outside the image: clipping must bring it back
_OTHERS = 2
_MEMBERS = 30  # examples of a canary that is a unit: more than are taken of it at once
_NODES = 200


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets that differ in one example: `without` (N - 1, d) and `with_canary` (N, d), float32.

    Where units are drawn they differ in one unit of many examples, and all others have one each. `base` and `shift`
    (d,) are what the encoder makes of them when every example takes part: the sum is `base` without the canary and
    ``base + shift`` with it.
    """

    without: Tensor
    with_canary: Tensor
    base: Array
    shift: Array


def neighbours(mechanism: Mechanism, generator: Generator, *, flip: bool) -> Neighbours:
    """All examples are zero but the canary, which saturates every rank of the worst profile, with random signs.

    Micro-batches with `flip`: a second example pulls the group's gradient the other way, so that the canary does not
    turn nothing into an encoding, but one encoding into its opposite. A canary that is a unit has many examples, all
    alike: any of them that was drawn by itself, or not averaged with the others, would move the sum further.
    """
    encoder = mechanism.encoder
    gradient = torch.from_numpy(_BEYOND * encoder.micro_batch * _saturating(encoder, mechanism.noise, generator))
    if flip and encoder.micro_batch > 1:
        others, canary = -gradient[None], 2 * gradient
    else:
        others, canary = torch.zeros(_OTHERS, len(gradient)), gradient
    without = others.float()
    members = _MEMBERS if mechanism.sampling.unit == UNIT else 1
    with_canary = torch.cat([without, canary.float().expand(members, -1)])
    base, moved = (_encoded_sum(mechanism, rows) for rows in (without, with_canary))
    if not np.any(moved != base):
        raise InvalidInput(
            f"the canary does not move the sum of {encoder!r}.", hint="an encoder that gives zeros cannot be audited"
        )
    return Neighbours(without, with_canary, base, moved - base)


def _saturating(encoder: Encoder, noise: Noise, generator: Generator) -> Array:
    """A vector (d,) on the edge of one encoding's image: ranks in random order, random signs."""
    dim = encoder.known_dim
    image = encoder.replace(micro_batch=1).image
    if not image.profiles:
        sizes = np.full(dim, image.norm / math.sqrt(dim))
    else:
        separation = Separation(noise)
        parts = []
        for block in image.profiles:
            ascending = np.repeat(block.levels[_worst(block, separation, noise.known_scale)], block.counts)
            parts.append(ascending[np.argsort(generator.uniforms(block.dim))])
        sizes = np.concatenate(parts)
    return np.asarray(generator.signed_uniforms(dim)[0] * sizes)


def _worst(block: ProfileSet, separation: Separation, scale: float) -> int:
    """The profile whose shift is the easiest to see at this scale."""
    if len(block) == 1:
        return 0
    return int(np.argmax([separation.of(row / scale, block.counts) for row in block.levels]))


def _encoded_sum(mechanism: Mechanism, rows: Tensor) -> Array:
    groups = torch.zeros(len(rows), dtype=torch.long) if mechanism.encoder.micro_batch > 1 else _ids(mechanism, rows)
    return np.asarray(mechanism.encoder.encode_sum(rows, groups).unsafe_values().numpy(), dtype=np.float64)


def _ids(mechanism: Mechanism, rows: Tensor) -> Tensor | None:
    """Whose `rows` (N, d) are whose, where that counts: all behind the others are the canary's."""
    return torch.arange(len(rows)).clamp(max=_OTHERS) if mechanism.sampling.unit == UNIT else None


def in_image(shift: Array, image: Image) -> bool:
    """Whether a move (d,) of the sum is one that the accountant knows of, up to rounding."""
    slack = 1 + 1e-9
    if np.linalg.norm(shift) > image.norm * slack:
        return False
    ends = np.cumsum([block.dim for block in image.profiles])
    for block, end in zip(image.profiles, ends, strict=True):
        ascending = np.sort(np.abs(shift[end - block.dim : end]))
        largest = ascending[np.cumsum(block.counts) - 1]  # of each level's ranks
        if not np.any(np.all(largest <= block.levels * slack, axis=1)):
            return False
    return True


def releases(mechanism: Mechanism, examples: Tensor, steps: int, seed: int | None) -> Iterator[Array]:
    """What `steps` private steps on `examples` (N, d) release, (d,) each: the code that trains, and no other."""
    dim = examples.shape[1]
    model = nn.Linear(dim, 1, bias=False, device="meta").to_empty(device="cpu")  # torch's own generator is left alone
    nn.init.zeros_(model.weight)
    targets = torch.zeros(len(examples))
    taken, units = mechanism.replace(steps=steps), _ids(mechanism, examples)
    private = make_private(model, _output, (examples, targets), taken, units=units, seed=seed)
    for _ in range(steps):
        yield np.asarray(private.step().values.numpy(), dtype=np.float64)


def _output(outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG001 - a loss has targets
    """The loss whose gradient for an example is the example itself."""
    return outputs.sum()


class Separation:
    """How far apart a law and its shift are: the symmetrised Kullback-Leibler divergence, mu squared for a Gaussian.

    >>> from noisette.noise import Gaussian
    >>> round(Separation(Gaussian()).of(np.array([1.0]), np.array([9])), 1)
    9.0
    """

    def __init__(self, noise: Noise) -> None:
        self._law = noise.replace(scale=1.0)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Logarithms of shifts and of separations, for the standard law.

        The mean of l tanh(l / 2), l the log-likelihood ratio, is the same under the law, the shifted law and their
        mixture, and neither small nor large shifts make it hang on rare draws.
        """
        sizes = self._law.magnitude((np.arange(_NODES) + 0.5) / _NODES)
        x = np.concatenate([-sizes, sizes])
        shifts = np.geomspace(1e-8, 1e14, 23 * 8)[:, None]
        loss = self._law.log_prob(x - shifts) - self._law.log_prob(x)
        means = np.mean(loss * np.tanh(loss / 2), axis=1)
        return np.log(shifts[:, 0]), np.log(2 * np.maximum(means, 1e-300))

    def of(self, ratios: Array, counts: npt.NDArray[np.int64]) -> float:
        """The separation by shifts of `ratios` (K,) times the scale, each on `counts` (K,) coordinates."""
        used = ratios > 0
        return float(np.exp(np.interp(np.log(ratios[used]), *self._table)) @ counts[used])

    def scale_for(self, shift: Array, wanted: float) -> float:
        """The noise scale at which a shift (d,) is `wanted` apart, to six digits: nothing hangs on the others."""
        sizes, counts = np.unique(np.abs(shift), return_counts=True)
        low, high = math.log(sizes[-1]) - 30.0, math.log(sizes[-1]) + 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.of(sizes / math.exp(middle), counts) > wanted else (low, middle)
        return float(f"{math.exp(low):.6g}")
