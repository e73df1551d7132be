"""Joined features: all parts beside each other, each of length one times its weight."""

from __future__ import annotations

from pathlib import Path

import torch

from noisette.app.features import Joined, Patches, Scattering, transform_cached
from noisette.app.features.synthetic_images import draw

SHAPE = (3, 12, 12)
PARTS = (
    Patches(filters=8, size=3, axes=9, count=20, whitening=0.25),
    Scattering(axes=8, count=20, seed=2, scales=1, angles=4, group=5),
)
SPEC = Joined(parts=PARTS, weights=(2.0, 0.5), axes=6, count=30, whitening=0.0)


def images(count: int) -> torch.Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(0))


def test_parts_are_what_they_are_alone_times_their_weights() -> None:
    found = SPEC.fit(SHAPE).raw(images(4))
    first, second = (part.fit(SHAPE)(images(4)) for part in PARTS)
    assert torch.equal(found, torch.cat([2.0 * first, 0.5 * second], dim=1))


def test_common_axes_are_those_of_the_joined_features_of_made_up_pictures() -> None:
    fixed = SPEC.fit(SHAPE)
    rows = fixed.raw(draw("leaves", 30, SHAPE, seed=0)).double()
    rows = rows - rows.mean(dim=0)
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    assert torch.allclose((fixed.axes.double().T @ vectors[:6].T).abs(), torch.eye(6).double(), atol=1e-3)
    assert torch.allclose(fixed.variances.double(), values[:6] ** 2 / 30, rtol=1e-3)


def test_a_part_is_computed_once_for_all_joins(tmp_path: Path) -> None:
    fixed, pictures = SPEC.fit(SHAPE), images(7)
    parts = [part.fit(SHAPE) for part in PARTS]
    for part in parts:
        transform_cached(part, pictures, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    found = transform_cached(fixed, pictures, tmp_path)
    assert torch.allclose(found, fixed(pictures), atol=5e-3), "16 bits a number, twice"
    after = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 2
    assert len(after) == 3
    assert before.items() <= after.items()


def test_other_weights_or_whitening_of_a_part_have_another_file(tmp_path: Path) -> None:
    """The file holds what whitened parts became, so their whitening must be in its name, unlike that of the whole."""
    fixed = SPEC.fit(SHAPE)
    others = (
        SPEC.replace(weights=(2.0, 0.6)),
        SPEC.replace(parts=(PARTS[0].replace(whitening=0.5), PARTS[1])),
    )
    parts = 2  # theirs are the same, whatever the weights are
    for number, spec in enumerate((SPEC, *others)):
        same = spec.from_state(SHAPE, fixed.state_dict())  # the same tensors: only what is beside them tells
        transform_cached(same, images(3), tmp_path)
        assert len(list(tmp_path.iterdir())) == parts + 1 + number
    transform_cached(SPEC.replace(whitening=1.0).from_state(SHAPE, fixed.state_dict()), images(3), tmp_path)
    assert len(list(tmp_path.iterdir())) == parts + 3
