"""Import paths like ``my_package.nets:Net``: how people name models, data and losses of their own."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Any

from noisette.errors import InvalidInput, NoisetteError

__all__ = ["imported"]

_NOTHING = object()


def imported(path: str) -> Any:
    """What an import path leads to. Modules of the current folder are found, as `python -m` finds them.

    What a module of others says when it fails is not told, since it may tell of private examples.

    >>> imported("torch.nn:Linear")
    <class 'torch.nn.modules.linear.Linear'>
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise InvalidInput(f"{path!r} is no import path.", hint="write my_package.nets:Net")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a console script has its own folder there
    try:
        there = importlib.import_module(module)
        found = getattr(there, name, _NOTHING)
    except NoisetteError:
        raise
    except Exception as error:  # noqa: BLE001 - code of others fails in ways of its own
        raise InvalidInput(
            f"{path} cannot be imported ({type(error).__name__}).",
            hint="is it in this folder, installed, or on PYTHONPATH? Write my_package.nets:Net",
        ) from None
    if found is _NOTHING:
        near = difflib.get_close_matches(name, vars(there), n=1)
        meant = f"did you mean {near[0]}? It" if near else "it"
        raise InvalidInput(  # with its file, since another module of that name may have been found first
            f"{module} has no {name!r}.", hint=f"{meant} was looked for in {getattr(there, '__file__', None) or module}"
        )
    return found
