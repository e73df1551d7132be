"""Puts ``>>>`` examples between fences, without which the site would set them as prose."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["Doctests", "fenced"]


def fenced(text: str) -> str:
    r"""`text` with a fence about every example that has none: from ``>>>`` to the next empty line.

    >>> fenced("Two:\n\n>>> 1 + 1\n2\n").splitlines()
    ['Two:', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    out: list[str] = []
    inside = example = False
    for line in (*text.splitlines(), ""):
        if line.startswith("```") and not example:
            inside = not inside
        if not inside and not example and line.startswith(">>> "):
            out.append("```pycon")
            example = True
        elif example and not line.strip():
            out.append("```")
            example = False
        out.append(line)
    return "\n".join(out)


class Doctests(griffe.Extension):
    """The same for docstrings, as the site's reference reads them."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for everything that is found in the sources."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
