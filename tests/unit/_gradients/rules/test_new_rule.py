"""A rule in a module of somebody else's is found and used, by class or by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from noisette._gradients import PerExampleGradients, rules
from noisette._gradients.flat_params import Layout
from noisette._gradients.rules import base
from noisette.encoders import L2, Ranked
from tests.support.rule_cases import bent, check, ways

LAYER = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return x * self.gamma
"""

RULE = """
from noisette._gradients.rules import Rule
from noisette._gradients.grad_forms import DenseRows
{imported}

class ScaleRule(Rule):
    layers = ({named},)

    def run(self, layer, use, x):
        out = x * use["gamma"]
        return use.note(out, gamma=lambda g: DenseRows(({made}).reshape(len(x), -1, x.shape[-1]).sum(dim=1)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Modules in it can be imported, and are forgotten afterwards, with their rules."""
    monkeypatch.setattr(base, "_RULES", dict(base._RULES))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "scales.py").write_text(LAYER)
    yield tmp_path
    for name in ("scales", "scale_rule"):
        sys.modules.pop(name, None)


def imported(folder: Path, name: str, text: str | None = None) -> ModuleType:
    if text is not None:
        (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def model_of(scales: ModuleType) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), scales.Scale(4), nn.Linear(4, 2)).double()


BY_CLASS = {"imported": "from scales import Scale", "named": "Scale"}
BY_NAME = {"imported": "", "named": '"scales.Scale"'}


@pytest.mark.parametrize("how", [BY_CLASS, BY_NAME], ids=["class", "name"])
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3)], ids=str)
def test_a_rule_is_found_and_used(how: dict[str, str], shape: tuple[int, ...], folder: Path) -> None:
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(1)).double()
    if how is BY_CLASS:
        scales = imported(folder, "scales")
        check(model_of(scales), x, copied=1)
        imported(folder, "scale_rule", RULE.format(**how, made="g * x"))
    else:  # nothing is imported by the rule
        imported(folder, "scale_rule", RULE.format(**how, made="g * x"))
        assert "scales" not in sys.modules
        scales = imported(folder, "scales")
    assert type(rules.find(scales.Scale(4))).__name__ == "ScaleRule"
    check(model_of(scales), x, copied=0)


def test_its_sums_are_encoded_by_the_kernel(folder: Path) -> None:
    imported(folder, "scale_rule", RULE.format(**BY_CLASS, made="g * x"))
    model, x = model_of(imported(folder, "scales")).float(), torch.randn(9, 5, 3)
    rows = torch.empty(9, Layout(model).dim)
    ways(model)[0].rows((x, torch.zeros(9)), rows)
    for encoder in (L2(dim=rows.shape[1], radius=0.5), Ranked(dim=rows.shape[1], radius=0.5)):
        found = PerExampleGradients(model, bent)._fused_sum(encoder, (x, torch.zeros(9)))
        torch.testing.assert_close(found, encoder.encode_sum(rows).unsafe_values(), rtol=1e-4, atol=1e-5)


def test_a_wrong_rule_is_found_out_and_given_up(folder: Path) -> None:
    imported(folder, "scale_rule", RULE.format(**BY_CLASS, made="g"))
    model, x, y = model_of(imported(folder, "scales")), torch.randn(6, 3).double(), torch.arange(6) % 2
    gradients = PerExampleGradients(model, nn.CrossEntropyLoss())
    assert gradients.path == "layers"
    gradients.check((x, y))
    assert gradients.path == "vmap"
