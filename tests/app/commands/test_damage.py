"""Every file of a run's folder, damaged in every way we could think of, under every command that reads it.

The ledger has tests of its own. Faults that were found by this: a traceback for most of these files, an empty
checkpoint taken for none, results that could not be written once the steps were paid.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import Command
from tests.support.damaged_runs import assert_documented, begun, copied, damages, snapshot

FILES = (
    "checkpoint.pt",
    "guarantee.json",
    "mechanism.toml",
    "metrics.jsonl",
    "model.pt",
    "recipe.toml",
    "settings.json",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was cut off, and its table."""
    folder = tmp_path_factory.mktemp("source")
    begun(folder)
    return folder


def _try(noisette: Command, source: Path, here: Path, name: str, count: int, most: int | None) -> None:
    """Damage the file `name`, at most `most` times, and run every command on what is left."""
    rng = random.Random(name)
    ways = list(damages(source / "tiny-0001" / name, rng, count))
    np.save(here / "x.npy", np.zeros((3, 2)))
    statuses = set()
    for way, damage in ways if most is None else [ways[0], *rng.sample(ways[1:], most - 1)]:  # a cut is always found
        for command in (("show",), ("predict", here / "x.npy"), ("resume", "--json")):
            run = copied(source, here / "copy") / "tiny-0001"
            damage(run / name)
            before = snapshot(run.parent)
            done = noisette(command[0], run, *command[1:])
            assert_documented(done)
            assert done.code == 0 or snapshot(run.parent) == before, f"{name}, {way}: {command[0]} left something"
            statuses.add(done.code)
    assert statuses == {0, 1}, "some damage is found, some does not matter to some command"


@pytest.mark.parametrize("name", FILES)
def test_a_few_damages(noisette: Command, source: Path, tmp_path: Path, name: str) -> None:
    _try(noisette, source, tmp_path, name, count=3, most=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_damage(noisette: Command, source: Path, tmp_path: Path, name: str) -> None:
    _try(noisette, source, tmp_path, name, count=30, most=None)


def test_what_was_found(noisette: Command, source: Path, tmp_path: Path) -> None:
    """Each of these ended in a traceback once, or was taken for what it is not."""
    for name, data, command, sentence in (
        ("guarantee.json", b"{", "show", "guarantee.json is damaged: it is not JSON"),
        ("guarantee.json", b"[1]", "show", "guarantee.json is damaged: it is not a JSON object"),
        ("guarantee.json", b"{}", "show", "guarantee.json is not a guarantee"),
        ("metrics.jsonl", b"\xff", "show", "metrics.jsonl is damaged: it is not text in UTF-8"),
        ("metrics.jsonl", b"{}\n", "show", "updates is None"),
        ("settings.json", b"", "resume", "settings.json is damaged"),
        ("settings.json", b"{}", "resume", "settings.json is damaged or of another version"),
        ("metrics.jsonl", b"3\n", "resume", "metrics.jsonl is damaged"),
        ("checkpoint.pt", b"abc", "resume", "checkpoint.pt is damaged or holds more than data"),
        ("checkpoint.pt", b"", "resume", "checkpoint.pt is damaged or holds more than data"),
    ):
        run = copied(source, tmp_path / "copy") / "tiny-0001"
        (run / name).write_bytes(data)
        noisette(command, run).assert_refused(sentence)
    run = copied(source, tmp_path / "copy") / "tiny-0001"
    (run / "model.pt").write_bytes((run / "checkpoint.pt").read_bytes())
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    noisette("predict", run, "x.npy").assert_refused("model.pt holds another model than that of this run", "backup")
    (run / "recipe.toml").write_text((run / "recipe.toml").read_text().replace("momentum", "momentun"))
    noisette("resume", run).assert_refused("recipe.toml has an unknown 'momentun'", "did you mean momentum?")


def test_text_of_others_is_not_markup(noisette: Command, source: Path, tmp_path: Path) -> None:
    run = copied(source, tmp_path / "[/bold]") / "tiny-0001"
    path = run / "guarantee.json"
    path.write_text(path.read_text().replace("add/remove", "[/red] :smile: \\\\[bold]"))
    done = noisette("show", run)
    assert done.code == 0
    assert "[/red] :smile: \\[bold]" in done.out
    noisette("show", "[/x]\n\x1b[31m").assert_refused("there is no folder [/x]\\n\\x1b[31m.")
    noisette("show", tmp_path).assert_refused("has no guarantee.json", "give the folder of a run")


def test_a_result_that_could_not_be_written_is_found_before_anything_is_paid(
    noisette: Command, source: Path, tmp_path: Path
) -> None:
    run = copied(source, tmp_path / "copy") / "tiny-0001"
    (run / "accuracy.png").mkdir()
    before = snapshot(run)
    noisette("resume", run).assert_refused("accuracy.png is not a file", "move it away")
    assert snapshot(run) == before
