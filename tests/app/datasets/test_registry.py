from __future__ import annotations

from pathlib import Path

import pytest

from noisette.app.datasets import load, population, within
from noisette.errors import InvalidInput
from tests.support.helpers import refused


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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mnsit", "mnist?"),
        ("cifar-10", "cifar10?"),
        ("", "digits, fashion-mnist"),
        ("digits:", "digits?"),
        ("mnist:x", "mnist?"),
        ("csv:", "csv:PATH"),
    ],
)
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as error:
        load(name)
    assert hint in error.value.hint
    assert "csv:PATH:TARGET" in error.value.hint


def test_a_file_has_the_same_people_whatever_column_and_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    (tmp_path / "link.csv").symlink_to("t.csv")
    spellings = ("t.csv:b", "t.csv:a", "./t.csv:b:0.2", f"{tmp_path}/t.csv:a", "link.csv:b", "x/../t.csv:b")
    assert {population(f"csv:{spelling}") for spelling in spellings} == {f"csv:{tmp_path / 't.csv'}"}
    assert population("folder:pictures") == population("folder:./pictures/") == f"folder:{tmp_path / 'pictures'}"
    assert population("csv:u.csv:b") != population("csv:t.csv:b")
    assert population("mnist") == "mnist"
    with refused(InvalidInput, match="which column"):
        population("csv:t.csv")


def test_test_parts_within_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert within("digits", "digits")
    assert within("folder:pictures", "folder:./pictures/")
    for inner, outer in (("digits", "mnist"), ("digits", "csv:t.csv:b:0.2"), ("csv:t.csv:b:0.3", "csv:t.csv:b")):
        assert not within(inner, outer)
    assert not within("nothing", "nothing"), "what nobody knows nobody can tell"
