"""noisette.estimators beside diffprivlib 0.6.6: three tables of scikit-learn, the same public bounds, 20 seeds each.

diffprivlib wants an older scikit-learn, so it runs in an environment of its own; the file needs neither library to be
read. Finished entries are kept in experiments/results/beyond/estimators-LIBRARY.json and not run again.

    python experiments/beyond/estimators.py noisette
    python -m venv peer && peer/bin/pip install diffprivlib==0.6.6 scikit-learn==1.7.2
    peer/bin/python experiments/beyond/estimators.py diffprivlib
    python experiments/beyond/estimators.py table
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

BUDGETS = (0.5, 1.0, 3.0)
SEEDS = range(20)
DELTA = 1e-5  # of noisette; diffprivlib promises delta = 0
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of diffprivlib: the best of them on the TEST rows is shown
HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "beyond"
LOADS = {
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "diabetes": lambda: load_diabetes(scaled=False),
}
LIBRARIES = ("noisette", "diffprivlib")

Task = tuple[str, str]
TASKS: tuple[Task, ...] = (
    ("logistic", "breast cancer"),
    ("logistic", "wine"),
    ("linear", "diabetes"),
    ("scaler", "breast cancer"),
    ("scaler", "wine"),
    ("scaler", "diabetes"),
)


def table(name: str) -> tuple[Any, Any, Any, Any]:
    """Training and test rows with their targets; every fifth row is for testing, columns are brought to [-1, 1]."""
    bounds, bunch = json.loads((HERE / "estimators-bounds.json").read_text())[name], LOADS[name]()
    low, high = np.array(bounds["columns"], dtype=float).T
    x, y = np.clip((2 * bunch.data - low - high) / (high - low), -1, 1), bunch.target
    if "target" in bounds:
        least, most = bounds["target"]
        y = np.clip((2 * y - least - most) / (most - least), -1, 1)
    test = np.arange(len(x)) % 5 == 0
    return x[~test], y[~test], x[test], y[test]


def fitted(library: str, task: str, epsilon: float, seed: int, strength: float | None, x: Any, y: Any) -> Any:
    """One estimator of either library on rows in [-1, 1]."""
    budget = {"epsilon": epsilon, "random_state": seed}
    if library == "noisette":
        from noisette import estimators as ours  # noqa: PLC0415 - one of the two is installed

        budget |= {"delta": DELTA, "bounds": (-1.0, 1.0)}
        if task == "logistic":
            return ours.PrivateLogisticRegression(**budget).fit(x, y)
        if task == "linear":
            return ours.PrivateLinearRegression(**budget, target_bounds=(-1.0, 1.0)).fit(x, y)
        return ours.PrivateStandardScaler(**budget).fit(x)
    from diffprivlib import models as theirs  # noqa: PLC0415

    if task == "logistic":
        norm = float(np.sqrt(x.shape[1]))
        return theirs.LogisticRegression(**budget, data_norm=norm, C=strength, max_iter=1000).fit(x, y)
    if task == "linear":
        return theirs.LinearRegression(**budget, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0)).fit(x, y)
    return theirs.StandardScaler(**budget, bounds=(-1.0, 1.0)).fit(x)


def measured(library: str, task: str, name: str, epsilon: float, seed: int, strength: float | None) -> float:
    """Test accuracy, R2 on test rows, or the root mean square error of the means and standard deviations."""
    x, y, held, truth = table(name)
    found = fitted(library, task, epsilon, seed, strength, x, y)
    if task == "logistic":
        return float(np.mean(found.predict(held) == truth))
    if task == "linear":
        errors = np.clip(found.predict(held), -1, 1) - truth  # both are cut off at the bounds of the target
        return float(1 - np.sum(errors**2) / np.sum((truth - truth.mean()) ** 2))
    wrong = np.concatenate([found.mean_ - x.mean(axis=0), np.sqrt(found.var_) - x.std(axis=0)])
    return float(np.sqrt(np.mean(wrong**2)))


def path(library: str) -> Path:
    return RESULTS / f"estimators-{library}.json"


def run(library: str) -> None:
    """Fill in what is missing."""
    done = json.loads(path(library).read_text()) if path(library).exists() else []
    keys = [
        {"task": task, "table": name, "epsilon": epsilon, "seed": seed, "strength": strength}
        for task, name in TASKS
        for epsilon in BUDGETS
        for strength in (STRENGTHS if (library, task) == ("diffprivlib", "logistic") else (None,))
        for seed in SEEDS
    ]
    for number, key in enumerate(keys):
        print(f"\r{number + 1} of {len(keys)}", end="", file=sys.stderr, flush=True)
        if any(key.items() <= one.items() for one in done):
            continue
        value = measured(library, key["task"], key["table"], key["epsilon"], key["seed"], key["strength"])
        done.append(key | {"value": value})
        path(library).write_text("[\n" + ",\n".join(map(json.dumps, done)) + "\n]\n")
    print(file=sys.stderr)


def cells(task: str, name: str, epsilon: float) -> Iterator[tuple[float, float]]:
    """Mean and standard deviation over the seeds, of each library; of several strengths the best mean."""
    for library in LIBRARIES:
        mine = {"task": task, "table": name, "epsilon": epsilon}
        rows = [one for one in json.loads(path(library).read_text()) if mine.items() <= one.items()]
        groups = [[one["value"] for one in rows if one["strength"] == s] for s in {one["strength"] for one in rows}]
        best = max(groups, key=statistics.mean)
        yield statistics.mean(best), statistics.stdev(best)


def lines() -> Iterator[str]:
    """The table of the page, in Markdown."""
    yield "| task | table | epsilon | noisette | diffprivlib |"
    yield "|---|---|---|---|---|"
    for task, name in TASKS:
        for epsilon in BUDGETS:
            unit, form = (100, "{:.1f} ± {:.1f}") if task == "logistic" else (1, "{:.3f} ± {:.3f}")
            shown = [form.format(unit * mean, unit * spread) for mean, spread in cells(task, name, epsilon)]
            yield f"| {task} | {name} | {epsilon:g} | {shown[0]} | {shown[1]} |"


if __name__ == "__main__":
    if sys.argv[1] in LIBRARIES:
        run(sys.argv[1])
    else:
        print("\n".join(lines()))
