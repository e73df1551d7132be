"""Every fault in the table is caught by the tests that claim it; a fault that survives fails the build."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

from tests import faults
from tests.faults.table import CAUGHT, FAULTS, Catcher, Fault

for part in pkgutil.iter_modules(faults.__path__):  # they fill the table
    if part.name not in {"conftest", "table", "test_faults"}:
        import_module(f"{faults.__name__}.{part.name}")

LISTED = (
    "noise x0.7",
    "noise x0.9",
    "noise x0.98",
    "noise once per micro-batch",
    "noise after denoising",
    "noise skipped on an empty batch",
    "ranks mis-sorted",
    "profile not normalised",
    "encoding dropped on one layer",
    "micro-batch 2 accounted as 1",
    "shuffling",
    "fixed-size sampling",
    "with-replacement sampling",
    "accountant with q/2",
    "accountant with T-1",
    "accountant with wrong nu",
    "max of epsilon instead of per-order max",
    "division by the realised batch size",
    "exponent clamp",
    "negative RDP accepted",
    "generator state restored on resume",
    "noise drawn in every process and summed",
    "a rule that forgets the bias",
    "a sum over the wrong axis",
    "padding_idx missed",
    "the second call of a layer missed",
    "a norm without cross terms",
    "a frozen parameter that gets a gradient",
    "a LoRA layer whose scaling is missed",
    "a weighted sum in float32 over a whole chunk",
    "copies shared between examples",
    "sampling examples instead of units",
    "per_unit ignored",
    "averaging after encoding",
    "the cut not paid for",
    "a cut that always drops the same examples",
    "K fixed",
    "all scores shown",
    "price forgotten",
    "private score without noise",
    "winner chosen by test accuracy",
)
"""The faults that must be in the table, whatever else is."""

PAIRS = [(fault, catcher) for fault in FAULTS for catcher in fault.catchers]
CATCHERS = list({(catcher.test, str(catcher)): catcher for _, catcher in PAIRS}.values())


def _marks(catcher: Catcher) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.slow,) if catcher.heavy else ()


@pytest.mark.parametrize(
    ("fault", "catcher"),
    [pytest.param(f, catcher, id=f"{f.name}-{catcher}", marks=_marks(catcher)) for f, catcher in PAIRS],
)
def test_caught(fault: Fault, catcher: Catcher, planting: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    fault.plant(planting)
    with pytest.raises(CAUGHT, match=catcher.says):
        catcher.run(request)


@pytest.mark.slow  # catchers are tests of their own, which run without a fault in every build
@pytest.mark.parametrize("catcher", [pytest.param(c, id=str(c), marks=_marks(c)) for c in CATCHERS])
def test_no_alarm_without_a_fault(catcher: Catcher, request: pytest.FixtureRequest) -> None:
    catcher.run(request)


@pytest.mark.parametrize("name", LISTED)
def test_listed_faults_are_planted(name: str) -> None:
    assert name in {fault.name.split(":")[0] for fault in FAULTS}
