"""Faults at the edges of a run: private values that are shown, and files that are believed."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from noisette import Private
from noisette.app.datasets import _csv, _published_files
from noisette.errors import InvalidInput
from noisette.training import PrivateRun, Progress, Trainer
from tests.app.datasets import test_csv, test_published_files
from tests.app.tuning import test_search
from tests.faults.table import by, fault
from tests.promises import test_nothing_private, test_resume
from tests.unit import test_private_sum, test_release

NEIGHBOURS = by(test_nothing_private.test_neighbours_cannot_be_told_apart, options=("--json",))


@fault("private value printed: by a step", NEIGHBOURS)
def norm_on_stderr(patch: pytest.MonkeyPatch) -> None:
    private_sum = PrivateRun._encode_batch_sum

    def tells(self: PrivateRun, *arguments: Any) -> Private:
        total = private_sum(self, *arguments)
        sys.stderr.write(f"{total.unsafe_values().norm():.3g}\n")
        return total

    patch.setattr(PrivateRun, "_encode_batch_sum", tells)


@fault("private value printed: by a sum", by(test_private_sum.test_adds_in_float64_and_does_not_print_values))
def sums_that_print(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Private, "__repr__", lambda self: f"Private({self.unsafe_values()})")


@fault("a number of steps that depends on the data", NEIGHBOURS)
def stops_early(patch: pytest.MonkeyPatch) -> None:
    """A broken example ends the training: nothing private is shown, and yet it tells."""
    run = Trainer.run

    def short(self: Trainer) -> Iterator[Progress]:
        for progress in run(self):
            yield progress
            if self.private._examples._batch[0].isnan().any():
                return

    patch.setattr(Trainer, "run", short)


@fault("a graph that leads back to private data", by(test_release.test_nothing_private_hangs_on_a_release))
def graph_kept(patch: pytest.MonkeyPatch) -> None:
    def start(self: Private, values: torch.Tensor) -> None:
        self._values, self._dim = values.double(), values.numel()

    patch.setattr(Private, "__init__", start)


@fault(
    "a pickle accepted in a checkpoint",
    by(test_resume.test_a_pickle_bomb_does_not_go_off, how="torch"),  # a bare pickle is no archive to begin with
)
def any_pickle(patch: pytest.MonkeyPatch) -> None:
    load = torch.load
    patch.setattr(torch, "load", lambda *args, **options: load(*args, **{**options, "weights_only": False}))


@fault(
    "a flipped byte in a data file accepted",
    by(test_published_files.test_a_flipped_byte_of_the_contents_is_refused, suffix=".gz"),
)
def any_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_published_files, "check", lambda file, content, where: content)


@fault(
    "a private folder that is closed after it was filled",
    by(test_search.test_nobody_else_ever_has_access_to_the_private_part, umask=0),
)
def closed_too_late(patch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir
    patch.setattr(Path, "mkdir", lambda self, mode=0o777, **options: mkdir(self, **options))


@fault(
    "a cell of a table without a header in an error",
    by(
        test_csv.test_without_a_header_no_cell_of_the_first_row_is_told,
        text="Alice Smith,HIV+,outcomes\nBob,no,n\n",
        match="no column 'outcome'",
    ),
)
def nearest_name(patch: pytest.MonkeyPatch) -> None:
    def there(header: list[str], file: str, name: str, otherwise: str) -> None:
        if name not in header:
            near = difflib.get_close_matches(name, header)
            raise InvalidInput(f"{file} has no column {name!r}.", hint=f"did you mean {near[0]}?")

    patch.setattr(_csv, "_check_there", there)
