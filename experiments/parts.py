"""A training run in parts: each ends with a checkpoint, and a run that was killed goes on after its last one.

A checkpoint of the library holds no state of any generator, so that a resumed run draws afresh. Here every part does
that, killed or not, from a seed of its own: that of the run and the step after which the part begins. So no number is
drawn twice, and a run that was killed comes to the same point as one that was not, if the code is the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisette import _io
from noisette.app.runs.run_folder import alone
from noisette.training import Processes, Trainer

WORK = Path(__file__).parent / "work"
"""Where checkpoints are until a run is done; not for git."""
PART = 128
"""Steps of a part: 20 seconds of a busy core, so within five minutes for whoever gets a tenth of one, but not less."""

Notes = dict[str, Any]


class Parts:
    """The checkpoints of one run, in a folder named after what is trained; `notes` are what its point will need.

    `notes` of a checkpoint are written before it and bear its step, so that a kill in between changes neither.
    """

    def __init__(self, key: dict[str, Any]) -> None:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        self.folder = WORK / f"{key['data']}-{digest[:16]}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other process trains the same run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with alone(self.folder, Processes.current(), "training"):
            yield

    def notes(self) -> Notes | None:
        """Those of the last checkpoint, if there is one."""
        last = self._last()
        return json.loads(_io.text(self.folder / f"{last}.json")) if last else None

    def steps(self, trainer: Callable[[int], Trainer], seed: int, notes: Notes) -> Iterator[tuple[Trainer, int]]:
        """The trainer and the number of updates after every step from the last checkpoint on, until all are taken.

        `trainer` makes one from a seed; `notes`, as they are then, are kept with every checkpoint.
        """
        while True:
            first = self._last()
            part = trainer((first << 32) + seed)
            if first:
                part.load(self.folder / f"{first}.pt")
            for progress in part.run():
                yield part, progress.updates
                # steps are paid for ahead, and whoever resumes has lost what is paid and not taken
                if progress.updates >= first + PART and progress.paid == progress.updates:
                    self._keep(part, progress.updates, notes)
                    break
            else:
                return

    def done(self) -> None:
        """The run is kept elsewhere: its checkpoints may go."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _last(self) -> int:
        return max((int(path.stem) for path in self.folder.glob("*.pt")), default=0)

    def _keep(self, part: Trainer, step: int, notes: Notes) -> None:
        _io.write(self.folder / f"{step}.json", json.dumps(notes).encode())
        part.save(self.folder / f"{step}.pt")
        for path in self.folder.iterdir():
            if path.stem != str(step):
                path.unlink()


def commit() -> str:
    """The commit of the code that runs, with a + where the library or the experiments have been changed since."""
    here = Path(__file__).parents[1]

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)

    name = git("rev-parse", "--short=10", "HEAD").stdout.strip()
    changed = git("diff", "--quiet", "HEAD", "--", "src", "experiments/*.py").returncode
    return (name or "unknown") + "+" * bool(name and changed)
