"""Every kind of features: from its spec alone, example by example, the same again from its tensors."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import nn

from noisette._spec import parse, registered
from noisette.app.features import FeatureMap, Features, Patches, Scattering, TwoLayers
from noisette.app.features._patch_responses import spherical_means
from noisette.app.features.base import principal
from noisette.app.features.synthetic_images import PICTURES, draw
from tests.support.helpers import refused

SPECS = [spec for kind in registered(Features).values() for spec in kind.examples()]
SHAPE = (3, 16, 16)


@pytest.fixture(params=SPECS, ids=repr)
def spec(request: pytest.FixtureRequest) -> Features:
    value: Features = request.param
    return value


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def test_a_spec_reads_back(spec: Features) -> None:
    assert parse(repr(spec), Features) == spec


def test_features_have_length_one_and_the_asked_number(spec: Features) -> None:
    found = spec.fit(SHAPE)(images(5))
    assert found.shape[:2] == (5, spec.axes)
    assert found.ndim == (4 if spec.maps else 2)
    assert torch.allclose(found.norm(dim=1), torch.ones(()), atol=1e-5), "at every place, where there are several"


def test_an_example_touches_no_other(spec: Features) -> None:
    """Also not by its mere presence: the features of an image are the same in every company."""
    fixed, pictures = spec.fit(SHAPE), images(9)
    alone = torch.cat([fixed(picture[None]) for picture in pictures])
    assert torch.allclose(fixed(pictures), alone, atol=1e-5)


def test_nothing_private_goes_into_the_map(spec: Features) -> None:
    """What the map is learnt from has no room for pictures of anybody's."""
    assert list(inspect.signature(spec.fit).parameters) == ["shape", "progress"]
    fixed = spec.fit(SHAPE)
    before = {name: tensor.clone() for name, tensor in fixed.state_dict().items()}
    fixed(images(8))
    assert all(torch.equal(before[name], tensor) for name, tensor in fixed.state_dict().items())
    assert not list(fixed.parameters())


def test_the_same_again(spec: Features) -> None:
    first, second = spec.fit(SHAPE), spec.fit(SHAPE)
    third = spec.from_state(SHAPE, first.state_dict())
    assert torch.equal(first(images(3)), second(images(3)))
    assert torch.equal(first(images(3)), third(images(3)))
    other = spec.replace(seed=1).fit(SHAPE)
    assert not torch.allclose(first(images(3)), other(images(3)), atol=1e-3)


@pytest.mark.parametrize("side", [15, 16])
@pytest.mark.parametrize("name", ["Patches", "TwoLayers"])
def test_patches_do_not_know_left_from_right(name: str, side: int) -> None:
    """Also not where the places of the first layer do not fall into windows of three."""
    fixed = registered(Features)[name].examples()[0].fit((3, side, side))
    pictures = images(4)[..., :side, :side]
    assert torch.allclose(fixed(pictures), fixed(pictures.flip(3)), atol=1e-4)
    assert not torch.allclose(fixed(pictures), fixed(pictures.flip(2)), atol=1e-2)


def test_patch_features_are_what_the_definition_says() -> None:
    """Patch by patch in numpy: normalise, respond, threshold, average in cells, average with the mirror image."""
    spec = Patches(filters=4, size=3, grid=2, axes=2, count=10, group=1)
    raw = spec.fit(SHAPE).raw
    filters = raw.state_dict()["1.filters"].double().numpy().reshape(4, -1)
    picture = images(1).double().numpy()[0]

    def pooled(image: np.ndarray) -> np.ndarray:
        out = np.zeros((2, 4, 2, 2))
        for y in range(14):
            for x in range(14):
                patch = image[:, y : y + 3, x : x + 3].ravel()
                patch = (patch - patch.mean()) / np.sqrt(patch.var(ddof=1) + 0.01)
                response = filters @ patch
                out[0, :, y // 7, x // 7] += np.maximum(response - 0.5, 0) / 49
                out[1, :, y // 7, x // 7] += np.maximum(-response - 0.5, 0) / 49
        return out

    both = (pooled(picture) + pooled(picture[:, :, ::-1])) / 2
    halves = np.sqrt(both[:, :2])  # of a pair the second filter has the mirror image's features
    expected = halves.transpose(1, 0, 2, 3).reshape(4, 4)
    centred = expected - expected.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    assert np.allclose(raw(images(1)).numpy().reshape(4, 4), expected, atol=1e-3)


def test_axes_are_those_of_a_singular_value_decomposition() -> None:
    for shape in ((40, 12), (12, 40)):
        rows = torch.from_numpy(np.random.default_rng(0).standard_normal(shape)).float()
        rows = rows - rows.mean(dim=0)
        _, values, vectors = np.linalg.svd(rows.numpy(), full_matrices=False)
        axes, variances = principal(rows, 5)
        assert np.allclose(np.abs(axes.numpy().T @ vectors[:5].T), np.eye(5), atol=1e-3)
        assert np.allclose(variances.numpy(), values[:5] ** 2 / len(rows), rtol=1e-3)


def test_whitening_scales_each_axis_by_its_variance() -> None:
    fixed = FeatureMap(nn.Identity(), torch.zeros(2), torch.eye(2), torch.tensor([4.0, 1.0]), whitening=1.0)
    assert torch.allclose(fixed(torch.tensor([[2.0, 1.0]])), torch.tensor([[0.5, 0.5]]).sqrt())
    half = FeatureMap(nn.Identity(), torch.zeros(2), torch.eye(2), torch.tensor([16.0, 1.0]), whitening=0.5)
    assert torch.allclose(half(torch.tensor([[2.0, 1.0]])), torch.tensor([[0.5, 0.5]]).sqrt())


def test_every_place_of_a_map_is_seen_alike() -> None:
    """Along the principal axes of all places of all made-up pictures, which numpy finds here."""
    spec = Scattering(axes=3, count=20, scales=1, angles=4, group=5, whitening=0.5, maps=True)
    fixed = spec.fit(SHAPE)
    made_up = fixed.raw(draw(spec.pictures, spec.count, SHAPE, spec.seed)).numpy()
    places = made_up.transpose(0, 2, 3, 1).reshape(-1, made_up.shape[1])
    mean = places.mean(axis=0)
    _, values, vectors = np.linalg.svd(places - mean, full_matrices=False)
    private = fixed.raw(images(2)).numpy()
    assert private.shape == (2, 15, 8, 8)
    along = (private[1, :, 4, 6] - mean) @ vectors[:3].T * values[:3] ** -0.5
    found = fixed(images(2))[1, :, 4, 6].numpy()
    assert np.allclose(np.abs(found), np.abs(along) / np.linalg.norm(along), atol=1e-3)


def test_means_find_directions_whatever_their_sign() -> None:
    rng = np.random.default_rng(3)
    true = np.eye(6)[:3]
    rows = true[rng.integers(0, 3, 600)] * rng.choice([-1, 1], (600, 1)) + 0.05 * rng.standard_normal((600, 6))
    found = spherical_means(torch.from_numpy(rows).float(), 12, seed=0).numpy()
    assert np.allclose(np.abs(found @ true.T).max(axis=0), 1, atol=0.02)


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("shape", [(1, 20, 28), (3, 32, 32)])
def test_pictures(kind: str, shape: tuple[int, int, int]) -> None:
    first = draw(kind, 30, shape, seed=4)
    assert first.shape == (30, *shape)
    again = PICTURES[kind](30, max(shape), 4)[:, :, : shape[1], : shape[2]]  # however many are drawn at once
    torch.testing.assert_close(first.mean(dim=1), again.mean(dim=1))  # three greys add up to a rounding
    first.zero_()
    first = draw(kind, 30, shape, seed=4)
    assert float(first.min()) >= 0
    assert float(first.max()) <= 1
    assert float(first.std(dim=0).mean()) > 0.1, "they differ"
    assert not torch.equal(first, draw(kind, 30, shape, seed=5))


@pytest.mark.parametrize(
    "text",
    [
        "Scattering(pictures='photographs')",
        "Scattering(axes=0)",
        "Scattering(axes=10, count=10)",
        "Scattering(scales=0)",
        "Scattering(maps=1)",
        "Patches(filters=7)",
        "Patches(size=1)",
        "Patches(grid=0)",
        "Patches(shrink=0)",
        "TwoLayers(first=7)",
        "TwoLayers(second=7)",
        "TwoLayers(first=4, channels=9)",
        "Joined(parts=Patches())",
        "Joined(parts=(Patches(), 3))",
        "Joined(parts=(Patches(), Scattering()), weights=(1,))",
        "Joined(parts=(Patches(),), weights=(0,))",
        "Joined(parts=(Patches(maps=True),), weights=(1,))",
        "Joined(parts=(), weights=())",
    ],
)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with refused():
        parse(text, Features)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with refused(match="not images"):
        Scattering(axes=2, count=4).fit((10,))
    with refused(match="too small"):
        Patches(axes=2, count=4).fit((3, 6, 6))
    with refused(match="too small"):
        Patches(axes=2, count=4, shrink=3).fit((3, 16, 16))
    with refused(match="too small"):
        TwoLayers(axes=2, count=4).fit((3, 14, 14))
    with refused(match="groups"):
        Scattering(axes=2, count=4, group=4).fit((1, 16, 16))
    with refused(match="raw features"):
        Scattering(axes=20, count=30, scales=2, angles=1, group=1).fit((1, 8, 8))
