from __future__ import annotations

from pathlib import Path

import pytest

from noisette.data import load
from noisette.errors import InvalidInput


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_absent_data_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NOISETTE_DATA", str(tmp_path / "from-environment"))
    for root, looked in ((None, tmp_path / "from-environment"), (tmp_path / "given", tmp_path / "given")):
        with pytest.raises(InvalidInput) as error:
            load(name, root)
        assert str(looked) in error.value.sentence
        assert f"noisette data fetch {name}" in error.value.hint


def test_the_default_place_is_data_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISETTE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as error:
        load("mnist")
    assert str(tmp_path / "data" / "mnist") in error.value.sentence


@pytest.mark.parametrize(("name", "hint"), [("mnsit", "mnist?"), ("cifar-10", "cifar10?"), ("", "digits, mnist")])
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as error:
        load(name)
    assert hint in error.value.hint
    assert "csv:PATH:TARGET" in error.value.hint
