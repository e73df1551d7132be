"""The file of what is frozen, and how it is held to what is computed now."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FILE", "differences", "kept", "read", "text_of"]

FILE = Path(__file__).with_name("golden.json")

_NOTHING = object()

Tolerance = tuple[float, float]
"""Relative and absolute: of numbers that are floats, all else must be equal."""


def read() -> dict[str, Any]:
    """What is frozen, by section and label; nothing where there is no file."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def differences(old: Any, new: Any, tolerance: Tolerance, path: str = "") -> Iterator[str]:
    """A line for every entry that changed, is gone, or came."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            where = f"{path} / {key}" if path else key
            yield from differences(old.get(key, _NOTHING), new.get(key, _NOTHING), tolerance, where)
    elif new is _NOTHING:
        yield f"{path}: gone"
    elif old is _NOTHING:
        yield f"{path}: new"
    elif _are_names(old) and _are_names(new) and set(old) != set(new):
        yield f"{path}: {_listed('gone', set(old) - set(new))}{_listed('new', set(new) - set(old))}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, tolerance, f"{path}[{number}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=tolerance[0], abs_tol=tolerance[1]):
            yield f"{path}: {old!r} -> {new!r}"
    elif type(old) is not type(new) or old != new:
        yield f"{path}: {old!r} -> {new!r}"


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def _listed(word: str, entries: set[str]) -> str:
    return f"{word} {', '.join(sorted(entries))}; " if entries else ""


def kept(old: dict[str, Any], new: dict[str, Any], tolerance: Tolerance) -> dict[str, Any]:
    """`new`, with the entries of `old` wherever they agree: what did not change is not frozen anew."""
    return {
        section: {
            label: old[section][label]
            if label in old.get(section, {}) and not any(differences(old[section][label], entry, tolerance))
            else entry
            for label, entry in entries.items()
        }
        for section, entries in new.items()
    }


def text_of(found: dict[str, Any]) -> str:
    """The file: a line for every entry, so that a change shows what changed."""
    sections = (
        f"{json.dumps(section)}: {{\n"
        + ",\n".join(f"  {json.dumps(label)}: {json.dumps(entry)}" for label, entry in entries.items())
        + "\n}"
        for section, entries in found.items()
    )
    return "{\n" + ",\n".join(sections) + "\n}\n"
