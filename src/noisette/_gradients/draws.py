"""Random numbers of a model, the same for every example: what they are computed with can then be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from noisette._gradients.function_overrides import FunctionOverrides

__all__ = ["AlikeDraws"]

_GOLDEN = 0.6180339887498949


class AlikeDraws(FunctionOverrides):
    """In the block uniform and normal draws follow from their place in a row, and all rows have the same ones.

    >>> with AlikeDraws():
    ...     one, three = torch.randn(1, 5), torch.randn(3, 5)
    >>> bool((one == three).all()), bool((one == one[0, 0]).all())
    (True, False)
    """

    def called(self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The function itself; what it has drawn is overwritten."""
        result = func(*args, **given)
        if func in _NORMAL:
            first, second = _two(func is Tensor.normal_, args, given, "mean", "std")
            result.detach().copy_(torch.special.ndtri(_even(result)) * second + first)
        elif func in _UNIFORM:
            first, second = _two(func is Tensor.uniform_, args, given, "from", "to")
            result.detach().copy_(first + _even(result) * (second - first))
        return result


_NORMAL = {torch.randn, torch.randn_like, Tensor.normal_}
_UNIFORM = {torch.rand, torch.rand_like, Tensor.uniform_}


def _two(asked: bool, args: tuple[Any, ...], given: dict[str, Any], one: str, other: str) -> tuple[Any, Any]:
    """The two parameters of a law, if they were `asked` for: 0 and 1 where nothing is said."""
    found = dict(zip((one, other), args[1:], strict=False)) | given if asked else {}
    return found.get(one, 0.0), found.get(other, 1.0)


def _even(like: Tensor) -> Tensor:
    """Numbers between 0 and 1, spread evenly over a row, and the same in each."""
    shape = like.shape[1:]
    return ((torch.arange(1, shape.numel() + 1, dtype=torch.float64) * _GOLDEN) % 1).view(shape).to(like.device)
