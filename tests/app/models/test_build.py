from __future__ import annotations

import pytest
import torch
from torch import nn

from noisette.app.models import build, cifar_cnn, digits_cnn, linear, mlp, mnist_cnn
from noisette.errors import InvalidInput

SHAPES = {
    "mnist_cnn": (1, 28, 28),
    "cifar_cnn": (3, 32, 32),
    "digits_cnn": (1, 8, 8),
    "maps_cnn": (5, 7, 6),
    "linear": (7,),
    "mlp": (2, 3),
}


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("classes", [2, 10])
def test_logits_and_gradients_for_every_parameter(name: str, classes: int) -> None:
    model = build(name, SHAPES[name], classes, seed=1)
    inputs = torch.randn(5, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    logits = model(inputs)
    assert logits.shape == (5, classes)
    nn.functional.cross_entropy(logits, torch.zeros(5).long()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", SHAPES)
def test_examples_do_not_meet(name: str) -> None:
    model = build(name, SHAPES[name], 10).double()
    inputs = torch.randn(4, *SHAPES[name], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alone = torch.cat([model(example[None]) for example in inputs])
    assert torch.allclose(model(inputs), alone, atol=1e-12)


def test_sizes() -> None:
    assert parameters(mnist_cnn()) == parameters(mnist_cnn("tanh")) == 26_010
    assert parameters(cifar_cnn()) == 550_570
    assert parameters(cifar_cnn(width=16)) == 138_330 < 200_000
    assert parameters(digits_cnn()) == 6_090
    assert parameters(linear(64)) == 650
    assert parameters(linear(64, bias=False)) == 640
    assert parameters(mlp(64, (32,))) == 64 * 32 + 32 + 32 * 10 + 10
    assert parameters(mlp(64, ())) == parameters(linear(64))


def test_mnist_cnn_layers_are_those_of_the_paper() -> None:
    layers = list(mnist_cnn())[1:]  # after centring, which has no parameters
    sizes, x = [], torch.zeros(1, 1, 28, 28)
    for layer in layers:
        x = layer(x)
        sizes.append(tuple(x.shape[1:]))
    assert sizes == [
        *[(16, 14, 14)] * 2,
        (16, 13, 13),
        *[(32, 5, 5)] * 2,
        (32, 4, 4),
        (512,),
        *[(32,)] * 2,
        (10,),
    ]


@pytest.mark.parametrize("name", ["mnist_cnn", "cifar_cnn", "digits_cnn", "maps_cnn", "mlp"])
def test_the_activation_is_the_one_asked_for(name: str) -> None:
    kinds = {"relu": nn.ReLU, "tanh": nn.Tanh}
    for activation, kind in kinds.items():
        model = build(name, SHAPES[name], 10, activation=activation)
        found = {type(module) for module in model.modules()} & set(kinds.values())
        assert found == {kind}


@pytest.mark.parametrize("name", ["cifar_cnn", "digits_cnn", "maps_cnn"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_pooling_first_is_the_same_function(name: str, activation: str) -> None:
    model = build(name, SHAPES[name], 10, activation=activation)
    layers = list(model)
    pools = [place for place, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    assert pools
    for place in pools:
        layers[place], layers[place + 1] = layers[place + 1], layers[place]
    inputs = torch.rand(9, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    results = []
    for way in (model, nn.Sequential(*layers)):
        loss = nn.functional.cross_entropy(logits := way(inputs), torch.arange(9))
        results.append([logits, *torch.autograd.grad(loss, list(model.parameters()))])
    for first, second in zip(*results, strict=True):
        assert torch.allclose(first, second, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", SHAPES)
def test_weights_come_from_the_seed_alone(name: str) -> None:
    torch.manual_seed(11)
    first = build(name, SHAPES[name], 10, seed=3).state_dict()
    torch.manual_seed(12)
    torch.rand(5)
    again = build(name, SHAPES[name], 10, seed=3).state_dict()
    other = build(name, SHAPES[name], 10, seed=4).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_torchs_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    build("mlp", (4,), 3, seed=5)
    with pytest.raises(InvalidInput):
        build("mlp", (4,), 3, seed=5, activation="sine")
    assert torch.equal(torch.get_rng_state(), state)


def test_unknown_names_and_options_get_hints() -> None:
    with pytest.raises(InvalidInput, match=r"no model 'minst_cnn'.*\n\nhint: did you mean mnist_cnn"):
        build("minst_cnn", (1, 28, 28), 10)
    with pytest.raises(InvalidInput, match=r"no option 'width'.*\n\nhint: it takes activation$"):
        build("mnist_cnn", (1, 28, 28), 10, width=3)
    with pytest.raises(InvalidInput, match=r"no option 'hidden'.*\n\nhint: it takes bias$"):
        build("linear", (4,), 10, hidden=(3,))
    with pytest.raises(InvalidInput, match="no option 'inputs'"):
        build("mlp", (4,), 10, inputs=9)
    with pytest.raises(InvalidInput, match=r"no activation 'gelu'.*\n\nhint: use one of relu, tanh"):
        build("mlp", (4,), 10, activation="gelu")


def test_a_wrong_image_size_is_told_with_models_that_fit() -> None:
    with pytest.raises(InvalidInput) as error:
        build("mnist_cnn", (3, 32, 32), 10)
    assert error.value.sentence == "mnist_cnn wants 1x28x28, the data has 3x32x32."
    assert error.value.hint == "use cifar_cnn or linear or maps_cnn or mlp"
    with pytest.raises(InvalidInput) as error:
        build("maps_cnn", (20,), 10)
    assert error.value.sentence == "maps_cnn wants CxHxW, the data has 20."
    assert error.value.hint == "use linear or mlp"


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options"),
    [
        ("mlp", (4,), 0, {}),
        ("digits_cnn", (1, 8, 8), 1, {}),
        ("linear", (4,), 2.5, {}),
        ("linear", (4,), 3, {"bias": "no"}),
        ("mlp", (4,), 3, {"hidden": 5}),
        ("mlp", (4,), 3, {"hidden": (0,)}),
        ("cifar_cnn", (3, 32, 32), 3, {"width": 0}),
        ("linear", (4,), 3, {"seed": -1}),
        ("maps_cnn", (4, 1, 6), 3, {}),
    ],
)
def test_numbers_without_meaning_are_refused(name: str, shape: tuple, classes: int, options: dict) -> None:
    with pytest.raises(InvalidInput):
        build(name, shape, classes, **options)
