"""`Private` and `Released`: two types, so that code which reads the wrong one does not type-check."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

import noisette._numerics  # noqa: F401 - sets the mode of BLAS, which can be set until its first product
from noisette.errors import InvalidInput
from noisette.noise import Noise

__all__ = ["Private", "Released", "silence"]


class Private:
    """A sum of encoded gradients before noise. It can be added to another and released; it does not print its values.

    It takes a vector of float64 over as it is: what is released is made of the same memory.

    >>> Private(torch.ones(3)) + Private(torch.ones(3))
    Private(dim=3)
    """

    __slots__ = ("_dim", "_values")

    def __init__(self, values: torch.Tensor) -> None:
        if values.ndim != 1:
            raise InvalidInput(
                f"a private sum has shape {tuple(values.shape)}, not one dimension.", hint="flatten it first"
            )
        self._values: torch.Tensor | None = values.detach().double().contiguous()
        self._dim = values.numel()

    @property
    def dim(self) -> int:
        """Number of coordinates, which is public."""
        return self._dim

    def unsafe_values(self) -> torch.Tensor:
        """The values themselves, float64 (dim,). Whatever is computed from them is not private."""
        if self._values is None:
            raise InvalidInput(
                "this private sum was released, and is no more.", hint="a sum is released once; make it anew"
            )
        return self._values

    def unsafe_consume(self) -> torch.Tensor:
        """The values themselves, which nobody can ask this object for after that."""
        values, self._values = self.unsafe_values(), None
        return values

    def __add__(self, other: Private) -> Private:
        if not isinstance(other, Private):
            return NotImplemented
        if self.dim != other.dim:
            raise InvalidInput(
                f"private sums of {self.dim} and {other.dim} coordinates do not add.", hint="use one encoder"
            )
        return Private(self.unsafe_values() + other.unsafe_values())

    def __repr__(self) -> str:
        return f"Private(dim={self.dim})"


@dataclass(frozen=True, eq=False)
class Released:
    """A noised sum: public. Made by `noisette.release` and nowhere else.

    `values` is float64 (dim,); `noise` is the law that was added; `reproducible` marks noise from a seeded generator,
    which hides nothing from whoever knows the seed.
    """

    values: torch.Tensor
    noise: Noise
    reproducible: bool


@contextmanager
def silence() -> Iterator[None]:
    """Inside, no warning is shown, whoever raises it: a data set, a model or torch may warn about one example alone.

    >>> import warnings
    >>> with silence():
    ...     warnings.warn("this label is unusual")
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
