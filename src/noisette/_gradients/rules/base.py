"""What a rule is, and how the rule of a layer is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from noisette._gradients.grad_forms import GradForm

__all__ = ["Rule", "Use", "find", "hooked", "rule_of"]


class Use(ABC):
    """One call of a layer on all examples at once, as its rule sees it."""

    @abstractmethod
    def get(self, name: str) -> Tensor | None:
        """A parameter of the layer by name, as numbers that autograd does not follow; None where it has none."""

    def __getitem__(self, name: str) -> Tensor:
        """A parameter that every such layer has."""
        found = self.get(name)
        assert found is not None, name
        return found

    @abstractmethod
    def note(self, out: Tensor, **terms: Callable[[Tensor], GradForm]) -> Tensor:
        """`out` (B, ...), and how the derivative g (B, ...) there makes the term of each parameter.

        Return what comes back instead of `out`. A dot in a name is two underscores.
        """


class Rule(ABC):
    """How layers of some classes run, and how the gradients of their parameters follow.

    A subclass is found by the classes that it names, or by ``"module.Class"``, which imports nothing. A subclass of a
    layer may compute something else, so that only the classes themselves count.
    """

    layers: ClassVar[tuple[type[nn.Module] | str, ...]] = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for layer in cls.layers:
            _RULES[layer if isinstance(layer, str) else _name(layer)] = cls()

    def fits(self, layer: nn.Module) -> bool:  # noqa: ARG002 - most layers have no options that matter
        """Whether the rule covers the options of this layer."""
        return True

    @abstractmethod
    def run(self, layer: Any, use: Use, *args: Any, **given: Any) -> Any:
        """What the layer's ``forward`` would return, with examples in front of every tensor.

        A tensor that ``forward`` would see as (...) is (B, ...) here, in and out. Parameters come from `use`, and every
        tensor that depends on them goes through ``use.note`` right after that.
        """


_RULES: dict[str, Rule] = {}


def hooked(module: nn.Module) -> bool:
    """Whether a module does more than its class says, where its ``forward`` is not called."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _name(layer: type) -> str:
    return f"{layer.__module__}.{layer.__qualname__}"


def rule_of(layer: nn.Module) -> Rule | None:
    """The rule of a layer's class, whatever its options are."""
    return _RULES.get(_name(type(layer)))


def find(layer: nn.Module) -> Rule | None:
    """The rule of a layer, None where there is none.

    >>> find(nn.Linear(2, 3)) is not None, find(nn.Embedding(2, 3, max_norm=1.0))
    (True, None)
    """
    rule = rule_of(layer)
    return rule if rule is not None and "forward" not in vars(layer) and rule.fits(layer) else None
