"""TensorBoard's logs say what the run's own metrics say, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard itself
def test_logs_hold_the_points_of_the_run(noisette: Command, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    noisette("train", "--tensorboard", "--steps", "4", "--evaluations", "2")
    folder = tmp_path / "runs" / "digits-0001"
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    log = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert set(log.Tags()["scalars"]) == {"epsilon", "test accuracy"}
    for tag, key in (("epsilon", "epsilon"), ("test accuracy", "accuracy")):
        found = [(event.step, event.value) for event in log.Scalars(tag)]
        assert found == [(point["updates"], pytest.approx(point[key], rel=1e-6)) for point in points]
