"""Lays out what the site is made of in build/pages, as in the repository, so that every link there holds on the site.

    python .ci/site.py && mkdocs build --strict

Beside the pages themselves come a reference, a page for each part of the package, from its docstrings.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fences import fenced

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
TAKEN = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "docs/**/*.*",
    "examples/*.py",
    "experiments/results/*.png",
    "benchmarks/results/*.png",
)
PARTS = {
    "training": "Private gradients for your loop, plans and the trainer.",
    "mechanism": "The one value that decides epsilon, and what it promises.",
    "noise": "The laws that noise can follow.",
    "encoders": "How a gradient is bounded.",
    "encoders.profiles": "What bounds a gradient rank by rank.",
    "denoisers": "What is done to a release, for free.",
    "accounting": "Epsilon, calibration, comparison and the ledger.",
    "private_means": "Private means of a table.",
    "estimators": "Estimators for scikit-learn.",
    "objectives": "Losses for batches and models of every kind.",
    "audit": "Attacks on a guarantee.",
    "app.recipes": "Training runs as files.",
    "app.runs": "Runs and the folders that they leave.",
    "errors": "What is refused, and how that is said.",
}
_FOLDER = re.compile(r"\[([^\]]+)\]\((?:\.\./)*tests/[^)]*\)")  # the tests are not on the site


def main() -> None:
    """Lay everything out anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in TAKEN:
        for file in sorted(ROOT.glob(pattern)):
            target = PAGES / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".md":
                target.write_text(fenced(_FOLDER.sub(r"\1", file.read_text(encoding="utf-8"))), encoding="utf-8")
            else:
                shutil.copy(file, target)
    (PAGES / "api").mkdir()
    rows = [f"- [`noisette.{part}`]({part}.md): {what}" for part, what in PARTS.items()]
    (PAGES / "api" / "index.md").write_text("\n".join(("# API", "", *rows, "")), encoding="utf-8")
    for part in PARTS:
        (PAGES / "api" / f"{part}.md").write_text(f"::: noisette.{part}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
