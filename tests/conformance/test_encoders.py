"""P1 and P2 for every registered encoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from noisette import Encoder
from noisette._native import reference
from noisette._spec import registered
from noisette.encoders import L2, Ranked
from noisette.encoders.base import Image
from tests.conformance.encoder_checks import (
    ENCODER_CHECKS,
    ORDINARY,
    check_image,
    check_micro_batches,
    check_neighbours,
    check_total,
    outside_image,
)
from tests.support.helpers import adversarial_rows

ENCODERS = [encoder for kind in registered(Encoder).values() for encoder in kind.examples()]


def test_enough_gradients() -> None:
    """P1 asks for 1e5 gradients over the registered encoders."""
    assert {"L2", "Ranked", "Snap"} <= set(registered(Encoder))
    adversarial = sum(len(rows) for encoder in ENCODERS for _, rows in adversarial_rows(encoder.known_dim))
    assert len(ENCODERS) * ORDINARY + adversarial >= 100_000


@pytest.mark.parametrize("check", ENCODER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("encoder", ENCODERS, ids=repr)
def test_encoder(encoder: Encoder, check: Callable[[Encoder], None]) -> None:
    check(encoder)


# -- planted faults: each check above fails on the encoder it is there for -----------------------------------------


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., torch.Tensor]], None]:
    def spoil(name: str, change: Callable[..., torch.Tensor]) -> None:
        original = getattr(reference, name)
        monkeypatch.setattr(reference, name, lambda *args: change(original, *args))

    return spoil


def test_a_bound_a_little_too_wide_is_caught(spoilt: Callable) -> None:
    spoilt("exact_bounds", lambda original, *args: original(*args) * (1 + 2.0**-20))
    with pytest.raises(AssertionError):
        check_image(Ranked(dim=50))


def test_mis_sorted_ranks_are_caught(spoilt: Callable) -> None:
    """Bounds in the order of the coordinates, not of their magnitudes, are still a permutation of psi: P1 holds.

    Two coordinates that share the top rank's bound are not.
    """

    def twice_the_top(original: Callable, rows: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        bounds = original(rows, *rest)
        bounds[:, :2] = bounds.amax(dim=1, keepdim=True)
        return bounds

    spoilt("exact_bounds", twice_the_top)
    with pytest.raises(AssertionError):
        check_image(Ranked(dim=50))


def test_unsanitised_rows_are_caught(spoilt: Callable) -> None:
    spoilt("finite_rows", lambda _, rows: rows.double())
    for check in (check_image, check_total):
        with pytest.raises(AssertionError):
            check(Ranked(dim=50))


def test_a_clip_a_little_too_wide_is_caught(spoilt: Callable) -> None:
    spoilt("clip_norm", lambda original, rows, radius: original(rows, radius * (1 + 2.0**-20)))
    with pytest.raises(AssertionError):
        check_image(L2(dim=50))


def test_examples_that_interact_are_caught(spoilt: Callable) -> None:
    """A batch-wide choice of the bound makes one example change the others' encodings."""
    spoilt("exact_bounds", lambda original, *args: original(*args) * 0 + original(*args).mean(dim=0))
    with pytest.raises(AssertionError):
        check_neighbours(Ranked(dim=50))


def test_micro_batch_two_as_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (
        lambda image: image,
        lambda image: Image(2 * image.norm, tuple(block.scaled(2.0) for block in image.profiles)),
    ):
        monkeypatch.setattr(Image, "for_microbatches", wrong)
        with pytest.raises(AssertionError):
            check_micro_batches(Ranked(dim=50))


def test_outside_image_names_the_fault() -> None:
    image = Ranked(dim=4).image
    top = torch.from_numpy(image.profiles[0].levels)
    assert outside_image(top, image) == []
    assert outside_image(-top.flip(1), image) == []
    assert outside_image(top * 2, image) != []
    assert outside_image(torch.full((1, 4), torch.nan), image) == ["not finite"]
