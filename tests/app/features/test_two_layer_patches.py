"""Two layers of patch features, beside a transform in numpy that goes place by place."""

from __future__ import annotations

import numpy as np
import torch

from noisette.app.features import TwoLayers
from noisette.app.features.synthetic_images import draw

SHAPE = (3, 15, 15)
SPEC = TwoLayers(first=6, size=3, channels=5, second=8, grid=2, group=1, axes=4, count=30)


def patches(image: np.ndarray, size: int) -> np.ndarray:
    """Normalised patches (h, w, C * size**2) of a picture (3, H, W), or of maps, which are centred."""
    height, width = (side - size + 1 for side in image.shape[1:])
    found = np.array([[image[:, y : y + size, x : x + size].ravel() for x in range(width)] for y in range(height)])
    if len(image) == 3:
        found = found - found.mean(axis=2, keepdims=True)
    return found / np.sqrt((found**2).sum(axis=2, keepdims=True) / (found.shape[2] - 1) + 0.01)


def signs(image: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Responses beyond 0.5 (2, filters, h, w), positive and negative apart."""
    response = patches(image, filters.shape[-1]) @ filters.reshape(len(filters), -1).T
    return np.maximum(np.stack([response, -response]) - 0.5, 0).transpose(0, 3, 1, 2)


def first_layer(picture: np.ndarray, state: dict[str, np.ndarray]) -> np.ndarray:
    """Maps (channels, h, w) of a picture (C, H, W)."""
    over = signs(picture, state["0.filters"]).reshape(12, 13, 13)
    pooled = np.array(
        [[np.sqrt(over[:, y : y + 3, x : x + 3].mean(axis=(1, 2))) for x in range(0, 11, 2)] for y in range(0, 11, 2)]
    )
    return ((pooled - state["0.mean"]) @ state["0.axes"].T).transpose(2, 0, 1)


def features(picture: np.ndarray, state: dict[str, np.ndarray]) -> np.ndarray:
    over = signs(first_layer(picture, state), state["1.filters"])  # (2, 8, 4, 4)
    return over.reshape(2, 8, 2, 2, 2, 2).mean(axis=(3, 5))


def learnt() -> tuple[torch.nn.Module, dict[str, np.ndarray]]:
    raw = SPEC.fit(SHAPE).raw
    return raw, {name: tensor.double().numpy() for name, tensor in raw.state_dict().items()}


def test_features_are_what_the_definition_says() -> None:
    raw, state = learnt()
    picture = torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(1))
    exact = picture.double().numpy()[0]
    both = (features(exact, state) + features(exact[:, :, ::-1], state)) / 2
    expected = np.sqrt(both[:, :4]).transpose(1, 0, 2, 3).reshape(8, 4)  # the second half has the mirror image's
    centred = expected - expected.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
    assert np.allclose(raw(picture).numpy().reshape(8, 4), expected, atol=2e-3)


def test_a_mirror_image_has_mirrored_maps_up_to_their_parity() -> None:
    raw, state = learnt()
    picture = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(2))
    assert set(state["0.parity"]) == {1.0, -1.0}
    mirrored = raw[0](picture).flip(3) * raw[0].parity[:, None, None]  # type: ignore[index, union-attr]
    assert torch.allclose(raw[0](picture.flip(3)), mirrored, atol=1e-5)  # type: ignore[index]


def test_channels_are_half_whitened_principal_axes() -> None:
    """Of made-up pictures and their mirror images, which numpy finds here from all of them at once."""
    _, state = learnt()
    pictures = draw(SPEC.pictures, SPEC.count, SHAPE, SPEC.seed)
    both = torch.cat([pictures, pictures.flip(3)]).double().numpy()
    rows = np.concatenate(
        [first_layer(p, state | {"0.mean": 0.0, "0.axes": np.eye(12)}).reshape(12, -1).T for p in both]
    )
    assert np.allclose(state["0.mean"], rows.mean(axis=0), atol=1e-4)
    centred = rows - rows.mean(axis=0)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    variances = values**2 / len(rows)
    expected = vectors[:5] * (variances[:5] * variances[0])[:, None] ** -0.25
    assert np.allclose(np.abs(state["0.axes"] @ expected.T), np.diag((expected**2).sum(axis=1)), atol=0.02)
