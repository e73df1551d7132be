"""The native module: whether it is there, and which variant of it runs.

The environment variable ``NOISETTE_KERNEL`` picks a variant by name ("avx512", "avx2", "plain") or turns all of them
"off"; what is computed in torch instead says what it has to be.
"""

from __future__ import annotations

import os
import warnings
from functools import cache

from noisette.errors import InvalidInput

try:
    from noisette._native import _extension as native

    _built = True
except ImportError:  # built without a compiler, or run from the sources
    _built = False

__all__ = ["NoKernel", "native", "variant"]


class NoKernel(UserWarning):
    """The native kernel was not built, so that encoding and noise take the slower reference path."""


def variant() -> str | None:
    """The variant of the kernel that runs, None where the reference does.

    >>> variant() in ("avx512", "avx2", "plain", None)
    True
    """
    wanted = os.environ.get("NOISETTE_KERNEL", "")
    if wanted == "off":
        return None
    if not _built:
        _say_once()
        return None
    found: list[str] = _variants()
    if not wanted:
        return found[0]
    if wanted not in found:
        raise InvalidInput(
            f"NOISETTE_KERNEL is {wanted!r}, which does not run here.", hint=f"off, or one of {', '.join(found)}"
        )
    return wanted


@cache
def _variants() -> list[str]:
    return list(native.variants())


@cache
def _say_once() -> None:
    warnings.warn(
        NoKernel("noisette was built without its native kernel, encoding and noise take the slower reference path"),
        stacklevel=4,
    )
