"""The one door: the private sum plus exactly one draw of the declared noise on every coordinate."""

from __future__ import annotations

import pytest
import torch

from noisette import L2, Gaussian, Generator, Mechanism, Private, Ranked, Released, StudentT, release
from noisette.errors import InvalidInput
from tests.conformance.statistics import sampling_faults
from tests.helpers import ordinary_rows, refused, spread

MECHANISM = Mechanism(Ranked(dim=50), StudentT(9, 0.7), rate=0.1, steps=5)


def test_sum_plus_one_draw() -> None:
    """With a seed the noise can be drawn again, and what is left is the sum."""
    private = MECHANISM.encoder.encode_sum(ordinary_rows(20, 50, seed=1))
    released = release(MECHANISM, private, generator=Generator(3))
    noise = MECHANISM.noise.sample((50,), Generator(3))
    grid = MECHANISM.grid
    assert torch.equal(released.values, grid.noised(private.unsafe_values(), noise.clone()))
    assert float((released.values - private.unsafe_values() - noise).abs().max()) <= grid.coarse / 2 + 1e-12
    assert released.noise == MECHANISM.noise
    assert released.values.dtype == torch.float64


def test_the_noise_of_a_release_is_the_declared_law() -> None:
    """P4 through the door, 4e5 coordinates at a level of 1e-6; and noise x0.95 would be seen."""
    encoder = Ranked(dim=400_000)
    mechanism = Mechanism(encoder, StudentT(9, 0.7), rate=0.1, steps=1)
    private = encoder.encode_sum(torch.zeros(0, 400_000))
    noise = spread(mechanism, release(mechanism, private, generator=Generator(8)).values - private.unsafe_values())
    assert sampling_faults(mechanism.noise, noise) == []
    assert sampling_faults(mechanism.noise, 0.95 * noise) != []


def test_every_release_has_fresh_noise() -> None:
    private = Private(torch.zeros(50))
    generator = Generator()
    torch.manual_seed(0)
    first = release(MECHANISM, private, generator=generator).values
    torch.manual_seed(0)
    second = release(MECHANISM, private, generator=generator).values
    torch.manual_seed(0)
    third = release(MECHANISM, private, generator=Generator()).values
    for one, other in ((first, second), (first, third), (second, third)):
        assert int((one == other).sum()) < 5, "cells coincide now and then, noise does not"
    assert torch.all(private.unsafe_values() == 0), "the sum itself is left alone"


def test_a_seed_is_stamped() -> None:
    private = Private(torch.zeros(50))
    assert release(MECHANISM, private, generator=Generator(1)).reproducible
    assert not release(MECHANISM, private, generator=Generator()).reproducible


def test_an_empty_batch_is_a_step() -> None:
    """Noise only, same shape, same type."""
    released = release(MECHANISM, MECHANISM.encoder.encode_sum(torch.empty(0, 50)), generator=Generator())
    assert isinstance(released, Released)
    assert released.values.shape == (50,)
    assert int((released.values != 0).sum()) > 40, "noise, a cell of which is that of zero"


def test_what_is_no_private_sum_is_refused() -> None:
    released = release(MECHANISM, Private(torch.zeros(50)), generator=Generator())
    for wrong in (torch.zeros(50), released, None, [0.0] * 50):
        with refused(InvalidInput, "not a private sum"):
            release(MECHANISM, wrong, generator=Generator())  # type: ignore[arg-type]
    with refused(InvalidInput, "does not fit"):
        release(MECHANISM, Private(torch.zeros(49)), generator=Generator())
    with pytest.raises(TypeError):
        release(MECHANISM, Private(torch.zeros(50)))  # type: ignore[call-arg]


def test_an_open_scale_cannot_be_released() -> None:
    with refused(InvalidInput, "no scale"):
        release(MECHANISM.replace(noise=StudentT(9)), Private(torch.zeros(50)), generator=Generator())
    open_dim = Mechanism(L2(), Gaussian(1.0), 0.1, 1)
    with refused(InvalidInput):
        release(open_dim, Private(torch.zeros(50)), generator=Generator())


def test_nothing_private_hangs_on_a_release() -> None:
    rows = ordinary_rows(5, 50, seed=2).requires_grad_()
    released = release(MECHANISM, MECHANISM.encoder.encode_sum(rows), generator=Generator())
    assert not released.values.requires_grad
    assert released.values.grad_fn is None
