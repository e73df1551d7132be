"""Locks: one holder at a time, until its end; and a system without them is refused by name."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noisette import _locks
from tests.support.helpers import refused

HOLDER = """
import os, sys
from noisette import _locks as locks
handle = os.open(sys.argv[1], os.O_RDONLY)
locks.hold(handle, shared=sys.argv[2] == "shared")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_ends_with_its_process(tmp_path: Path, shared: bool) -> None:
    """That of a folder, as of a file. Readers share; nobody shares with a writer."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "shared" if shared else "alone"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        handle = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            _locks.hold(handle)
        if shared:
            _locks.hold(handle, shared=True)
        else:
            with pytest.raises(BlockingIOError):
                _locks.hold(handle, shared=True)
        holder.kill()
    _locks.hold(handle)
    os.close(handle)


def test_a_system_without_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.spec_from_file_location("locks_again", _locks.__file__)
    assert spec is not None
    assert spec.loader is not None
    with refused(ImportError, match="file locks of POSIX"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
