"""Hooks on parameters: gradients of single examples never pass through them, so they would be left out silently."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from noisette.errors import InvalidInput

__all__ = ["UNHOOK", "Own", "hooked", "refuse_hooks"]

UNHOOK = (
    "remove the hook: freeze a parameter that should stay with requires_grad_(False), or apply a mask to the update, "
    "that is to the weights after each optimizer.step()"
)


class Own:
    """What the library's own hooks inherit from: they change no gradient."""

    def __call__(self, parameter: Tensor) -> None:
        """What autograd calls when it has put a gradient into `parameter`."""
        raise NotImplementedError


def hooked(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Trained parameters with a hook of the user's on their gradient, by name.

    >>> layer = nn.Linear(2, 1)
    >>> handle = layer.weight.register_hook(lambda gradient: gradient * 0)
    >>> [name for name, _ in hooked(layer)]
    ['weight']
    """
    for name, parameter in model.named_parameters():
        found = (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None))
        if parameter.requires_grad and any(
            not isinstance(hook, Own) for hooks in found for hook in (hooks or {}).values()
        ):
            yield name, parameter


def refuse_hooks(model: nn.Module) -> None:
    """Raise InvalidInput where a trained parameter has a hook of the user's."""
    for name, _ in hooked(model):
        raise InvalidInput(
            f"the parameter {name!r} has a hook on its gradient, which private gradients do not pass through.",
            hint=UNHOOK,
        )
