"""The optimizer of a recipe: any of torch.optim by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable

import torch
from torch import nn

from noisette.app.recipes.recipe import Recipe
from noisette.errors import InvalidInput

__all__ = ["optimizer_of"]

_UNFIT = {"LBFGS": "asks for the loss again in every step", "SparseAdam": "takes sparse gradients only"}


def optimizer_of(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that `recipe` names, over the parameters of `model`. It sees released gradients: all are private.

    >>> adam = Recipe.load("digits").changed(optimizer="Adam", momentum=0.0, optimizer_options={"eps": 1e-6})
    >>> type(optimizer_of(adam, nn.Linear(2, 1))).__name__
    'Adam'
    """
    known: dict[str, Callable[..., torch.optim.Optimizer]] = {
        name: kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    }
    name = recipe.optimizer
    if name in _UNFIT:
        raise InvalidInput(f"{name} {_UNFIT[name]}, which no private run can give.", hint="take SGD or Adam")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4) or sorted(set(known) - set(_UNFIT))
        raise InvalidInput(f"torch.optim has no {name!r}.", hint=f"did you mean {', '.join(near)}?")
    takes = inspect.signature(known[name]).parameters
    options = recipe.optimizer_options | ({"momentum": recipe.momentum} if recipe.momentum else {})
    if unknown := sorted(set(options) - set(takes)):
        raise InvalidInput(
            f"{name} has no {unknown[0]}.", hint="give momentum 0" if unknown[0] == "momentum" else f"see {name}'s page"
        )
    try:
        return known[name](model.parameters(), lr=recipe.lr, **options)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} does not take these options.", hint=f"{error}") from None
