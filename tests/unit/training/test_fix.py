"""Models that are refused, mended: they pass the check, train a private step, and their originals are untouched."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from noisette import Mechanism, check, fix, make_private
from noisette._gradients import SlowPath
from noisette.encoders import L2
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from noisette.objectives import classification
from noisette.training import StatisticsDropped


class Dense(nn.Module):
    """A small DenseNet: every layer sees the outputs of all before it, and activations work in place."""

    def __init__(self, width: int = 6, layers: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(width * (i + 1)),
                nn.ReLU(inplace=True),
                nn.Conv2d(width * (i + 1), width, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )
        self.head = nn.Linear(width * (layers + 1), 3)

    def forward(self, pixel_values: Tensor) -> Any:
        seen = [self.stem(pixel_values)]
        for layer in self.layers:
            seen.append(layer(torch.cat(seen, 1)))
        logits = self.head(torch.cat(seen, 1).mean((2, 3)))
        return transformers.modeling_outputs.ImageClassifierOutput(logits=logits)


def resnet() -> nn.Module:
    given = {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1], "layer_type": "basic"}
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**given, num_labels=3))


def mobilenet() -> nn.Module:
    config = transformers.MobileNetV2Config(depth_multiplier=0.1, image_size=16, num_labels=3)
    return transformers.MobileNetV2ForImageClassification(config)


def vit() -> nn.Module:
    given = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(**given, image_size=16, patch_size=8, num_labels=3)
    return transformers.ViTForImageClassification(config)


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {"pixel_values": torch.randn(6, 3, 16, 16, generator=generator), "labels": torch.arange(6) % 3}


@pytest.mark.parametrize("make", [Dense, resnet, pytest.param(mobilenet, marks=pytest.mark.slow), vit])
def test_mended_models_train(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make()
    before = copy.deepcopy(model.state_dict())
    broken = not check(model).passed
    assert broken == (make is not vit)
    with pytest.warns(StatisticsDropped, match="running statistics") if broken else warnings.catch_warnings():
        mended = fix(model)
    assert check(mended).findings == ()
    mechanism = Mechanism(L2(), Gaussian(scale=0.1), rate=1.0, steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SlowPath)
        private = make_private(mended, classification, batch(), mechanism)
        start = [p.detach().clone() for p in mended.parameters()]
        private.step()
        assert private._gradients.path == "layers"
        torch.optim.SGD(mended.parameters(), lr=0.1).step()
    assert not all(torch.equal(p, q) for p, q in zip(mended.parameters(), start, strict=True))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    if broken:
        with pytest.raises(InvalidInput, match=r"hint: replace it by GroupNorm, which noisette.fix\(model\)"):
            make_private(model, classification, batch(), mechanism)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6, 7, 24, 64, 96, 130, 1000])
def test_groups(channels: int) -> None:
    """They divide the channels, are at most 32, and leave four channels where there are as many."""
    with pytest.warns(StatisticsDropped):
        mended = fix(nn.BatchNorm1d(channels))
    assert isinstance(mended, nn.GroupNorm)
    assert channels % mended.num_groups == 0
    assert mended.num_groups == 1 or (mended.num_groups <= 32 and channels // mended.num_groups >= 4)
    if channels in (64, 96, 1000):
        assert mended.num_groups == {64: 16, 96: 24, 1000: 25}[channels]
    if channels > 1:
        assert float(mended(torch.randn(5, channels)).detach().abs().max()) > 0.1, (
            "one number in a group would become zero"
        )


def test_weights_and_settings_are_kept() -> None:
    old = nn.BatchNorm2d(8, eps=0.01).double()
    nn.init.normal_(old.weight)
    with pytest.warns(StatisticsDropped):
        mended: Any = fix(old)
    assert mended.eps == 0.01
    assert torch.equal(mended.weight, old.weight)
    assert mended.weight is not old.weight
    assert mended.weight.dtype == torch.float64
    with pytest.warns(StatisticsDropped):
        bare: Any = fix(nn.BatchNorm2d(8, affine=False))
    assert bare.weight is None


def test_instance_norm_with_running_statistics() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.InstanceNorm1d(4, affine=True, track_running_stats=True))
    assert not check(model).passed
    with pytest.warns(StatisticsDropped, match="1 layers .InstanceNorm1d."):
        mended: Any = fix(model)
    assert check(mended, torch.zeros(3, 2, 9)).findings == ()
    x = torch.randn(5, 2, 9)
    mended.eval()
    torch.testing.assert_close(mended(x)[:1], mended(x[:1]))
    assert math.isclose(float(mended(x)[0, 0].detach().mean()), 0.0, abs_tol=1e-5)


def test_a_layer_under_two_names_keeps_them() -> None:
    norm = nn.BatchNorm1d(4)
    with pytest.warns(StatisticsDropped, match="1 layers"):
        mended: Any = fix(nn.ModuleDict({"one": norm, "two": norm}))
    assert mended["one"] is mended["two"]
    assert isinstance(mended["one"], nn.GroupNorm)


def test_layers_that_rest_on_purpose_stay() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
    model[1].eval()
    assert isinstance(fix(model)[1], nn.BatchNorm1d)
