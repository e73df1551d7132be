"""Nothing that was frozen has changed. Where it must: `python -m tests.golden.freeze`, in a commit of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.golden import frozen, mechanisms, names, outputs, streams

KERNELS = ["off", *names.variants()]
EXACT = (0.0, 0.0)


def _check(found: dict[str, Any], tolerance: tuple[float, float] = EXACT) -> None:
    old = frozen.read()
    changed = list(frozen.differences({section: old.get(section, {}) for section in found}, found, tolerance))
    assert not changed, "\n".join(["to freeze it anew: python -m tests.golden.freeze", *changed])


def test_epsilons_and_deltas() -> None:
    _check(mechanisms.computed(), mechanisms.tolerance())


@pytest.mark.parametrize("variant", KERNELS)
def test_streams_and_releases(variant: str) -> None:
    with streams.kernel_set_to(variant):
        _check(streams.computed() | ({} if variant == "off" else streams.by_kernel()))


def test_what_commands_print_and_folders_hold(tmp_path: Path) -> None:
    found = outputs.computed(tmp_path)
    _check(found)
    asked = {purpose for purposes in found["purposes"].values() for purpose in purposes}
    assert asked == set(streams.PURPOSES)


@pytest.mark.parametrize("kind", names.bundled())
def test_something_is_frozen_of_everything_that_is_bundled(kind: str) -> None:
    bundled, in_the_file = names.bundled()[kind]
    assert bundled == in_the_file


def test_every_section_is_held_to_what_is_computed() -> None:
    assert set(frozen.read()) == {
        "epsilons", "epsilons at delta 1e-9", "deltas",
        "words", "draws", "released", "encoded", "encoded by the kernel", "trained",
        "keys", "purposes", "folders",
    }  # fmt: skip
    assert len(frozen.read()["epsilons"]) >= 60


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ({"a": 1.0}, {"a": 1.0 + 3e-12}, ["a: 1.0 -> 1.000000000003"]),
        ({"a": 1.0}, {"a": 1.0 + 3e-13}, []),
        ({"a": 1.0}, {"a": None}, ["a: 1.0 -> None"]),
        ({"a": 1}, {"a": 1.0}, ["a: 1 -> 1.0"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["a / b[1]: 2 -> 3"]),
        ({"a": ["x", "y"]}, {"a": ["y", "z", "w"]}, ["a: gone x; new w, z; "]),
        ({"a": ["x", "y"]}, {"a": ["x", "z"]}, ["a: gone y; new z; "]),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, ["a[0]: 'x' -> 'y'", "a[1]: 'y' -> 'x'"]),
        ({"a": ["x"]}, {"a": ["x", "x"]}, ["a: ['x'] -> ['x', 'x']"]),
        ({"a": 1}, {"b": 1}, ["a: gone", "b: new"]),
    ],
)
def test_what_counts_as_a_change(old: Any, new: Any, says: list[str]) -> None:
    assert list(frozen.differences(old, new, (1e-12, 0.0))) == says


def test_what_still_holds_is_not_frozen_anew() -> None:
    old = {"s": {"same": [1.0, 2.0], "other": 1.0, "gone": 1.0}}
    new = {"s": {"same": [1.0, 2.0 + 1e-13], "other": 1.1, "came": 3}, "t": {"u": 1}}
    kept = frozen.kept(old, new, (1e-12, 0.0))
    assert kept == {"s": {"same": [1.0, 2.0], "other": 1.1, "came": 3}, "t": {"u": 1}}
