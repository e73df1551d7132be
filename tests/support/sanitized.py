"""A pytest plugin, for `make sanitize`: the kernel of build/sanitize takes the place of the installed one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_NAME = "noisette._native._extension"

(_FILE,) = (Path(__file__).parents[2] / "build" / "sanitize").glob("_extension*.so")
_SPEC = importlib.util.spec_from_file_location(_NAME, _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
sys.modules[_NAME] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules[_NAME])


def pytest_report_header() -> str:
    from noisette import _native  # noqa: PLC0415 - only now, so that it meets the module above

    assert _native.native is sys.modules[_NAME]
    return f"native kernel: {_FILE}"
