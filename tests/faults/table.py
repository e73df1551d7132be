"""The table of planted faults: what could be wrong, how it is planted from outside, and the tests that must fail on it.

A new fault is one small function in a module beside this one:

    @fault("noise x0.7", by(test_door.test_every_release_has_fresh_noise))
    def weak(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(...)

A name may have a part behind a colon, where one fault can sit in several places.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from noisette.errors import NoisetteError

__all__ = ["CAUGHT", "FAULTS", "Catcher", "Fault", "Plant", "by", "fault"]

Plant = Callable[[pytest.MonkeyPatch], None]
"""Puts a fault in place; whoever owns the patch takes it out again."""

CAUGHT = (AssertionError, NoisetteError, UserWarning, pytest.fail.Exception)
"""How a test fails, in which warnings are errors. Any other exception is a fault that crashes, which proves nothing."""


@dataclass(frozen=True)
class Catcher:
    """A test of the suite, with the arguments of its parametrisation; the rest of its parameters are fixtures.

    `says` is a pattern that its failure must match, so that it fails for the right reason. `heavy` ones run in
    `make slow` only; a fault needs another one as well.
    """

    test: Callable[..., None]
    arguments: tuple[tuple[str, Any], ...]
    says: str | None
    heavy: bool

    def run(self, request: pytest.FixtureRequest) -> None:
        """Call the test. Fixtures are made here, after the fault was planted, and undone before it is taken out."""
        marks = getattr(self.test, "pytestmark", [])
        for name in (name for mark in marks if mark.name == "usefixtures" for name in mark.args):
            request.getfixturevalue(name)
        given = dict(self.arguments)
        names = [name for name in inspect.signature(self.test).parameters if name not in given]
        self.test(**{name: request.getfixturevalue(name) for name in names}, **given)

    def __str__(self) -> str:
        texts = [value.__name__ if callable(value) else str(value) for _, value in self.arguments]
        return self.test.__name__ + (f"({', '.join(texts)})" if texts else "")


@dataclass(frozen=True)
class Fault:
    """A fault by name, how it is planted, and who catches it."""

    name: str
    plant: Plant
    catchers: tuple[Catcher, ...]


FAULTS: list[Fault] = []


def by(test: Callable[..., None], *, says: str | None = None, heavy: bool = False, **arguments: Any) -> Catcher:
    """The test `test`, called with `arguments`."""
    return Catcher(test, tuple(arguments.items()), says, heavy)


def fault(name: str, *catchers: Catcher) -> Callable[[Plant], Plant]:
    """Enter the decorated function into the table, as the fault `name` that every one of `catchers` sees."""
    return partial(_enter, name, catchers)


def _enter(name: str, catchers: tuple[Catcher, ...], plant: Plant) -> Plant:
    assert not all(catcher.heavy for catcher in catchers), f"nobody catches {name} in the normal run"
    assert name not in {entry.name for entry in FAULTS}, f"{name} is entered twice"
    FAULTS.append(Fault(name, plant, catchers))
    return plant
