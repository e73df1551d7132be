"""Data that does not fit the model or the loss: what was tried, and torch's own first sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette import L2, Gaussian, Mechanism, check, make_private
from noisette.batch import Batch
from noisette.errors import InvalidInput
from tests.helpers import refused

X, Y = torch.full((9, 4), 0.123), torch.ones(9, dtype=torch.long)
CLASSES = nn.CrossEntropyLoss()


class Objective(nn.Module):
    """An objective that is a module is taken for a loss."""

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


CASES: dict[str, tuple[Any, Any, str, str]] = {
    "float64": ((X.double(), Y), CLASSES, "float64 (4,)", "Double and Float"),
    "whole numbers": ((X.long(), Y), CLASSES, "int64 (4,)", "Long and Float"),
    "int32 labels": ((X, Y.int()), CLASSES, "int32 ()", "Int"),
    "a column of labels": ((X, Y[:, None]), CLASSES, "int64 (1,)", "multi-target not supported"),
    "another width": ((X[:, :3], Y), CLASSES, "float32 (3,)", "shapes cannot be multiplied (4x3 and 4x2)"),
    "targets of another shape": ((X, Y.float()), nn.BCEWithLogitsLoss(), "float32 ()", "must be the same"),
    "a module as objective": ((X, Y), Objective(), "float32 (4,)", "'Tensor' object is not callable"),
    "another first name": ((X, Y), lambda net, batch: net(batch[0]).sum(1), "float32 (4,)", "not callable"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_told_before_anything_private_is_used(name: str) -> None:
    data, goal, kinds, said = CASES[name]
    with refused(InvalidInput, match=r"Linear or the loss cannot be run on made-up examples") as caught:
        make_private(nn.Linear(4, 2), goal, data, Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=1))
    error = caught.value
    assert kinds in error.sentence
    assert said in error.sentence
    assert error.__cause__ is not None
    assert "0.123" not in str(error)
    assert ("first parameter is called model" if "callable" in said else "int64 (N,)") in error.hint
    (finding,) = check(nn.Linear(4, 2), data, goal=goal).findings
    assert (f"{finding.reason}.", finding.fix) == (error.sentence, error.hint)
