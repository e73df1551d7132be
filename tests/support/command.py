"""The command line, called in this process: its exit status and what it wrote."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from noisette.app.commands import main


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; anything else there fails."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1, "one line, nothing else"
        value = json.loads(self.out, parse_constant=_refuse)
        assert isinstance(value, dict)
        return value

    def assert_refused(self, sentence: str, hint: str = "") -> None:
        """It ended with status 1, nothing on stdout, and an error with a hint on stderr."""
        assert self.code == 1, self.err
        assert self.out == ""
        assert "Traceback" not in self.err
        told, _, fix = self.err.partition("hint:")
        assert sentence in told
        assert hint in fix
        assert fix.strip()


def _refuse(name: str) -> None:
    pytest.fail(f"{name} is not JSON")


class Command:
    """`noisette ARGUMENTS`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["noisette", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, out, err)
