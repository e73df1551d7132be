"""Processes that round unlike each other: an example's gradient would depend on who else was drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from noisette import Encoder, Mechanism, make_private
from noisette._gradients import Inexact
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.training import PrivateRun
from tests.support.children import Children, together
from tests.support.helpers import assert_well_formed
from tests.support.tiny_run import DIM, examples, network


def run_of(encoder: Encoder) -> PrivateRun:
    mechanism = Mechanism(encoder, Gaussian(scale=1.0), rate=0.5, steps=4)
    return make_private(network(), nn.CrossEntropyLoss(), examples(), mechanism, seed=5)


def test_an_encoder_that_jumps_is_rejected(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        torch.set_num_threads(1 + process)
        return run_of(Ranked(dim=DIM))

    children = Children(2, work, tmp_path / "run")
    assert children.wait() == [1, 1]
    for process in range(2):
        error = children.outcome(process)
        assert isinstance(error, InvalidInput)
        assert_well_formed(error)
        assert "do not compute alike" in error.sentence


def test_another_is_flagged_before_the_first_step(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        torch.set_num_threads(1 + process)
        with pytest.warns(Inexact, match="do not compute alike"):
            run = run_of(L2(dim=DIM))
        return run.flags

    for flags in together(2, work, tmp_path / "run"):
        assert "inexact" in flags


def test_threads_that_one_process_sets_later_end_the_run(tmp_path: Path) -> None:
    def work(process: int) -> Any:
        run = run_of(L2(dim=DIM))
        run.step()
        torch.set_num_threads(1 + process)
        run.step()

    children = Children(2, work, tmp_path / "run")
    assert children.wait() == [1, 1]
    for process in range(2):
        assert "other threads or libraries than when the run began" in str(children.outcome(process))
