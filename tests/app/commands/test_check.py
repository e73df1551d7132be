"""`noisette check`: one table, one JSON object, an exit status, and code of others that fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.command import Command

NETS = """
import torch
from torch import nn

fine = nn.Linear(4, 2)
data = torch.zeros(9, 4), torch.zeros(9, dtype=torch.long)


def mixed():
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))


def broken():
    raise OSError("no file")
"""


@pytest.fixture
def nets(noisette: Command, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the folder that the command runs in."""
    name = "nets_of_a_user"
    Path(f"{name}.py").write_text(NETS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_a_model_that_passes(nets: str, noisette: Command) -> None:
    found = noisette("check", f"{nets}:fine", "--data", f"{nets}:data", "--json")
    assert found.code == 0
    assert found.json == {"model": f"{nets}:fine", "passed": True, "parameters": 10, "path": "layers", "findings": []}
    assert "nothing is refused or slow" in noisette("check", f"{nets}:fine").out


def test_a_model_that_is_refused(nets: str, noisette: Command) -> None:
    found = noisette("check", f"{nets}:mixed", "--json")
    assert found.code == 1
    assert [(one["layer"], one["verdict"]) for one in json.loads(found.out)["findings"]] == [
        ("BatchNorm1d '1'", "refused")
    ]
    assert "noisette.fix(model)" in noisette("check", f"{nets}:mixed").out


def test_a_name_that_the_module_does_not_have(nets: str, noisette: Command) -> None:
    noisette("check", f"{nets}:Nope").assert_refused(f"{nets} has no 'Nope'", f"{nets}.py")
    noisette("check", f"{nets}:mixd").assert_refused(f"{nets} has no 'mixd'", "did you mean mixed?")
    noisette("check", "none_of_that:Net").assert_refused("cannot be imported (ModuleNotFoundError)", "PYTHONPATH")


@pytest.mark.parametrize("name", ["nets", "nets:none", "none_of_that:Net", ":", "{}:broken", "{}:data"])
def test_what_is_no_model(name: str, nets: str, noisette: Command) -> None:
    found = noisette("check", name.format(nets))
    assert found.code == 1
    assert "hint:" in found.err
    assert "Traceback" not in found.err


def test_what_data_say_when_they_fail_is_not_told(nets: str, noisette: Command) -> None:
    found = noisette("check", f"{nets}:fine", "--data", f"{nets}:broken")
    assert found.code == 1
    assert "OSError" in found.err
    assert "no file" not in found.err
