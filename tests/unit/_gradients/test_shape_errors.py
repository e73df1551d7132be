"""Data that does not fit the model or the loss: what was tried, and torch's own first sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from noisette import Mechanism, check, make_private
from noisette._pytree import Batch
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.objectives import per_example
from tests.support.helpers import refused

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


class Detector(nn.Module):
    """Takes lists, gives losses in training, and looks at boxes, as the models of torchvision for detection do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> dict[str, Tensor]:
        if targets is None:
            torch._assert(False, "targets should not be none when in training mode")
        for number, target in enumerate(targets):
            if (target["boxes"][:, 2:] <= target["boxes"][:, :2]).any():
                torch._assert(False, f"All bounding boxes should have positive height and width. Found at {number}.")
        found = torch.stack([self.layer(image).mean((1, 2)) for image in images])
        boxes = torch.stack([target["boxes"].mean(0) for target in targets])
        return {"boxes": F.mse_loss(found, boxes), "size": found.square().mean()}


def losses(model: nn.Module, batch: Batch) -> Any:
    return model(list(batch[0]), [{"boxes": boxes} for boxes in batch[1]])


def added(model: nn.Module, batch: Batch) -> Tensor:
    return sum(losses(model, batch).values())


def from_sizes(model: nn.Module, batch: Batch) -> Tensor:
    at, size = batch[1].split(2, dim=-1)
    return added(model, (batch[0], torch.cat([at, at + size], dim=-1)))


@pytest.mark.filterwarnings("ignore::noisette._gradients.SlowPath")
def test_models_for_detection_are_told_what_to_give() -> None:
    torch.manual_seed(0)
    pictures, at, size = torch.rand(9, 3, 8, 8), torch.rand(9, 2, 2), torch.rand(9, 2, 2) + 0.1
    corners, sizes = (pictures, torch.cat([at, at + size], 2)), (pictures, torch.cat([at, size], 2))
    mechanism = Mechanism(L2(), Gaussian(scale=1.0), rate=0.5, steps=1)
    for goal in (nn.MSELoss(), per_example(added)):
        with refused(InvalidInput, match=r"\n\nhint: a model for detection takes lists.*per_example\(objective\)"):
            make_private(Detector(), goal, corners, mechanism)
    farther = torch.tensor([0, 0, 2, 2])
    unadded = per_example(lambda model, batch: losses(model, (batch[0], batch[1] + farther)))
    with refused(InvalidInput, match=r"\n\nhint: a model for detection gives a dict of losses.*sum\("):
        make_private(Detector(), unadded, corners, mechanism)
    make_private(Detector(), per_example(from_sizes), sizes, mechanism).step()
