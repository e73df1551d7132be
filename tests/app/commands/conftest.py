"""What every test of the command line needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Command


@pytest.fixture
def noisette(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOISETTE_DATA", raising=False)
    return Command(monkeypatch, capsys)
