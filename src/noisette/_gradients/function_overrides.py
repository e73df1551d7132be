"""Every function of torch that is called inside a block, seen before it runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

__all__ = ["FunctionOverrides"]


class FunctionOverrides(TorchFunctionMode):
    """A block in which `called` decides what a function of torch does."""

    @abstractmethod
    def called(self, func: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """What `func` gives for positional `args` and keywords `given`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.called(func, args, dict(kwargs or {}))
