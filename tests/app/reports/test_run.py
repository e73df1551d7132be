"""Folders that cannot be reported are refused in a sentence, and nothing in them or beside them changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.damaged_runs import assert_documented, begun, snapshot
from tests.support.finished_runs import finished


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "without ledger": (lambda run: (run / "ledger.jsonl").unlink(), "ledger.jsonl is missing"),
    "with an empty ledger": (lambda run: (run / "ledger.jsonl").write_bytes(b""), "is empty"),
    "of another version": (lambda run: _edit(run / "settings.json", format=9), "of another version"),
    "with an older ledger": (
        lambda run: (run / "ledger.jsonl").write_text('{"format": "noisette ledger 1"}\n'), "is not a ledger"
    ),
    "that promises more than was paid": (lambda run: _edit(run / "guarantee.json", epsilon=0.1), "something else"),
    "at another delta": (lambda run: _edit(run / "guarantee.json", delta=1e-3), "something else"),
    "of another mechanism": (lambda run: _edit(run / "guarantee.json", mechanism_hash="0" * 16), "something else"),
    "with flags that are none": (lambda run: _edit(run / "guarantee.json", flags=["fine"]), "is not a stamp"),
    "without result": (lambda run: (run / "guarantee.json").unlink(), "is not finished"),
    "without points": (lambda run: (run / "metrics.jsonl").unlink(), "is not finished"),
    "with a damaged recipe": (lambda run: (run / "recipe.toml").write_text("name = "), "is not TOML"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_run(noisette: Command, tmp_path: Path, kind: str) -> None:
    folder = finished(tmp_path)
    damage, sentence = BAD[kind]
    damage(folder)
    before = snapshot(tmp_path)
    for arguments in (("report", folder, "--yaml", "r.yaml", "--markdown", "c.md"), ("show", folder, "--statement")):
        done = noisette(*arguments)
        done.assert_refused(sentence)
        assert_documented(done)
    assert snapshot(tmp_path) == before, "something was written"


def test_an_unfinished_run(noisette: Command, tmp_path: Path) -> None:
    folder = begun(tmp_path)
    (folder / "page.html").write_text("Written by noisette report, earlier")
    before = snapshot(tmp_path)
    noisette("report", folder).assert_refused("is not finished: it has paid for 2 steps", f"noisette resume {folder}")
    assert snapshot(tmp_path) == before, "the old page is lost"


def test_what_is_no_run(noisette: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    noisette("report", "nowhere").assert_refused("there is no folder nowhere", "folder of a run")
    noisette("report", "file").assert_refused("there is no folder file")
    noisette("report", "empty").assert_refused("neither a run nor a folder of runs", "runs/")
    noisette("show", "nowhere", "--statement").assert_refused("there is no folder nowhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_a_common_ledger_that_was_exchanged(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path, shared=tmp_path / "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "all.jsonl").write_text("".join(lines[:-1]))
    noisette("report", folder).assert_refused("does not hold the payments of this run", "backup")


def test_files_of_others_are_not_written_over(noisette: Command, tmp_path: Path) -> None:
    folder = finished(tmp_path)
    (tmp_path / "mine.md").write_text("my own words")
    before = snapshot(tmp_path)
    for option in ("-o", "--yaml", "--markdown"):
        for path in (folder / "ledger.jsonl", "mine.md", folder):
            noisette("report", folder, option, path).assert_refused("is there already", "another name")
    noisette("report", folder, "-o", "a.html", "--yaml", "a.html").assert_refused("same name")
    noisette("report", folder, "-o", "no/where.html").assert_refused("cannot be written", "another place")
    assert snapshot(tmp_path) == before
    for _ in range(2):  # its own page it writes again, to the same bytes
        assert noisette("report", folder, "-o", "mine.html").code == 0
        assert (tmp_path / "mine.html").read_bytes() == (tmp_path / "mine.html").read_bytes()
    assert not list(tmp_path.glob("*.new"))
