"""P14 of searches: what a search shows, its files and its pages depend on what its runs have released alone.

As in the tests of runs, a neighbour has one example replaced: one that runs are trained on, or one that is held out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from noisette import Mechanism, Private, Released, private_means
from noisette.accounting import ledger
from noisette.app import datasets
from noisette.app.datasets import Dataset
from noisette.app.runs.holdout import holdout_mask
from noisette.training import private_run
from tests.app.commands.conftest import noisette
from tests.app.reports.test_html import check_pages_differ_where_the_noise_does
from tests.promises.test_nothing_private import EXAMPLES, _data, _neighbour
from tests.support.command import Command
from tests.support.small_searches import TINY

__all__ = ["noisette"]

TRAINED, HELD = (int((holdout_mask(range(EXAMPLES), 0.2) == out).nonzero()[0]) for out in (False, True))
TUNE = (
    "tune",
    "tiny.toml",
    "--epsilon",
    3,
    "--delta",
    1e-3,
    "--trials",
    3,
    "--trial-distribution",
    "geometric",
    "--seed",
)


class _Stage:
    """Searches on a data set, with a stopped clock; from the second time on, with the releases of the first."""

    def __init__(self, command: Command, patch: pytest.MonkeyPatch, root: Path, frozen: bool) -> None:
        self._command, self._patch, self._root, self._frozen = command, patch, root, frozen
        self._kept: list[Released] = []
        self._release, self._count = private_run.release, 0
        patch.setattr(ledger, "_now", lambda: "2000-01-01T00:00:00Z")
        patch.setattr(ledger, "_identity", lambda: "0" * 16)

    def __call__(self, data: Dataset, tried: str, seed: int) -> dict[str, Any]:
        """All that is not private: what was printed, the files, and the pages."""
        self._count += 1
        (place := self._root / str(self._count)).mkdir()
        self._patch.chdir(place)
        (place / "tiny.toml").write_text(TINY.changed(batch=25, data="mine").to_toml())
        turn = iter(list(self._kept))

        def next_(mechanism: Mechanism, total: Private, **options: Any) -> Released:
            if self._frozen and self._count > 1:
                return next(turn)
            self._kept.append(self._release(mechanism, total, **options))
            return self._kept[-1]

        self._patch.setattr(datasets, "load", lambda *_: data)
        for module in (private_run, private_means):
            self._patch.setattr(module, "release", next_)
        told = [self._command(*TUNE, seed, "--grid", tried)]
        winner = "runs/tiny-0001"
        told.append(self._command("report", winner, "--yaml", "r.yaml", "--markdown", "c.md"))
        told += [self._command("report", "runs"), self._command("show", winner, "--statement")]
        assert [one.code for one in told] == [0] * 4, told
        files = (path for path in sorted(place.rglob("*")) if path.is_file() and "private" not in path.parts)
        return {str(path.relative_to(place)): path.read_bytes() for path in files} | {"told": told}


@pytest.mark.parametrize(("slot", "value"), [(TRAINED, 9.0), (HELD, torch.nan)], ids=["trained on", "held out"])
def test_neighbours_cannot_be_told_apart(
    slot: int, value: float, noisette: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the same releases: byte by byte the same."""
    stage, data = _Stage(noisette, monkeypatch, tmp_path, frozen=True), _data()
    first = stage(data, "lr=0.5,1,2", 11)
    other = stage(_neighbour(data, torch.full((1, 4, 4), value), 2, slot), "lr=0.5,1,2", 11)
    assert other.keys() == first.keys()
    assert [name for name in first if other[name] != first[name]] == [], "a search tells neighbours apart"
    assert "runs/tiny-0001/page.html" in first


def test_with_the_same_seed_they_differ_where_the_noise_does(
    noisette: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage, data = _Stage(noisette, monkeypatch, tmp_path, frozen=False), _data()
    both = [stage(one, "lr=8", 12) for one in (data, _neighbour(data, torch.full((1, 4, 4), -9.0), 2, TRAINED))]
    check_pages_differ_where_the_noise_does([one["runs/tiny-0001/page.html"].decode() for one in both])
