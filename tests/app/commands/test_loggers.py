"""The logs of TensorBoard, Weights & Biases and trackio say what the run's own metrics say, and nothing else."""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command

SHORT = ("train", "--steps", "4", "--evaluations", "2", "--seed", "1", "--unsafe-show-private-metrics", "--json")
LABEL = "epsilon (reproducible, unsafe)"


def wanted(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """The points of the run, without the training loss, which is in its metrics here and must not be in any log."""
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(point["train_loss"] > 0 for point in points)
    return [(point["updates"], {LABEL: point["epsilon"], "test accuracy": point["accuracy"]}) for point in points]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard itself
def test_tensorboard(noisette: Command, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    folder = tmp_path / noisette(*SHORT, "--logger", "tensorboard").json["run"]
    log = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert set(log.Tags()["scalars"]) == {LABEL, "test accuracy"}
    for tag in (LABEL, "test accuracy"):
        found = [(event.step, event.value) for event in log.Scalars(tag)]
        assert found == [(step, pytest.approx(values[tag], rel=1e-6)) for step, values in wanted(folder)]


def records(path: Path) -> Iterator[Any]:
    """What wandb has written: a log of LevelDB's kind behind seven bytes, here of a single block."""
    from wandb.proto import wandb_internal_pb2  # noqa: PLC0415

    content, place = path.read_bytes(), 7
    assert content.startswith(b":W&B")
    assert len(content) < 2**15, "several blocks"
    while place < len(content):
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        assert kind == 1, "a record in parts"
        yield wandb_internal_pb2.Record.FromString(content[place + 7 : place + 7 + size])
        place += 7 + size


@pytest.mark.filterwarnings("ignore")  # of wandb itself
def test_weights_and_biases(noisette: Command, tmp_path: Path) -> None:
    folder = tmp_path / noisette(*SHORT, "--logger", "wandb").json["run"]
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    found, kinds = [], set()
    for record in records(path):
        kinds.add(record.WhichOneof("record_type"))
        if record.HasField("history"):
            items = {(*item.nested_key, item.key)[0]: json.loads(item.value_json) for item in record.history.item}
            own = {name: value for name, value in items.items() if not name.startswith("_")}
            found.append((items["_step"], own))
    assert found == wanted(folder)
    assert not kinds & {"stats", "output", "output_raw", "environment"}, "no load, no output, nothing of the machine"


def test_trackio(noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "logs"))  # is read when it is imported
    folder = tmp_path / noisette(*SHORT, "--logger", "trackio").json["run"]
    with sqlite3.connect(tmp_path / "logs" / "noisette.db") as book:
        rows = book.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
        assert book.execute("SELECT count(*) FROM system_metrics").fetchone() == (0,)
    book.close()
    assert [(step, json.loads(values)) for _, step, values in rows] == wanted(folder)
    assert {name for name, _, _ in rows} == {folder.name}
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/mine")
    noisette(*SHORT, "--logger", "trackio").assert_refused("TRACKIO_SPACE_ID would send", "trackio sync")


def test_a_missing_logger_names_its_extra(noisette: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for before anything else: no folder is left."""
    for module, called, name in (
        ("torch.utils.tensorboard", "TensorBoard", "tensorboard"),
        ("wandb", "Weights & Biases", "wandb"),
        ("trackio", "trackio", "trackio"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        noisette("train", "--logger", name).assert_refused(f"{called} is not installed", f"noisette[{name}]")
    noisette("train", "--logger", "board").assert_refused("no logger 'board'", "tensorboard, trackio, wandb")
    assert not list(tmp_path.glob("runs*"))
