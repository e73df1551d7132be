"""The one door: the private sum plus exactly one draw of the declared noise on every coordinate."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from noisette import Generator, Mechanism, Private, Released, release
from noisette.encoders import L2, Ranked
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, StudentT
from tests.conformance.statistics import sampling_faults
from tests.support.helpers import ordinary_rows, refused, spread

MECHANISM = Mechanism(Ranked(dim=50), StudentT(9, 0.7), rate=0.1, steps=5)


def test_sum_plus_one_draw() -> None:
    """With a seed the noise can be drawn again, and what is left is the sum."""
    private = MECHANISM.encoder.encode_sum(ordinary_rows(20, 50, seed=1))
    values = private.unsafe_values().clone()
    released = release(MECHANISM, private, generator=Generator(3))
    noise = MECHANISM.noise.sample((50,), Generator(3))
    grid = MECHANISM.grid
    assert torch.equal(released.values, grid.add_noise(values, noise.clone()))
    assert float((released.values - values - noise).abs().max()) <= grid.release_quantum / 2 + 1e-12
    assert released.noise == MECHANISM.noise
    assert released.values.dtype == torch.float64


def test_the_noise_of_a_release_is_the_declared_law() -> None:
    """P4 through the door, 4e5 coordinates at a level of 1e-6; and noise x0.95 would be seen."""
    encoder = Ranked(dim=400_000)
    mechanism = Mechanism(encoder, StudentT(9, 0.7), rate=0.1, steps=1)
    private = encoder.encode_sum(torch.zeros(0, 400_000))
    noise = spread(mechanism, release(mechanism, private, generator=Generator(8)).values)
    assert sampling_faults(mechanism.noise, noise) == []
    assert sampling_faults(mechanism.noise, 0.95 * noise) != []


def test_every_release_has_fresh_noise() -> None:
    generator = Generator()
    torch.manual_seed(0)
    first = release(MECHANISM, Private(torch.zeros(50)), generator=generator).values
    torch.manual_seed(0)
    second = release(MECHANISM, Private(torch.zeros(50)), generator=generator).values
    torch.manual_seed(0)
    third = release(MECHANISM, Private(torch.zeros(50)), generator=Generator()).values
    for one, other in ((first, second), (first, third), (second, third)):
        assert int((one == other).sum()) < 5, "cells coincide now and then, noise does not"


def test_a_sum_is_released_once_and_in_its_own_place() -> None:
    """A second release would be another step, which nobody has paid for."""
    private = Private(torch.zeros(50))
    place = private.unsafe_values()
    released = release(MECHANISM, private, generator=Generator())
    assert released.values.data_ptr() == place.data_ptr(), "no second vector"
    for again in (
        private.unsafe_values,
        lambda: private + Private(torch.zeros(50)),
        lambda: release(MECHANISM, private, generator=Generator()),
    ):
        with refused(InvalidInput, "was released"):
            again()
    assert repr(private) == "Private(dim=50)"


class Broken(Generator):
    """Gives out one block of words, and then none."""

    def random_words(self, n: int) -> npt.NDArray[np.uint64]:
        if hasattr(self, "given"):
            raise OSError("no more randomness")
        self.given = True
        return super().random_words(n)


def test_what_fails_midway_leaves_nothing() -> None:
    """Of several blocks one has noise, the others none: all are wiped, and the sum is gone."""
    mechanism = Mechanism(L2(dim=40_000), Gaussian(1.0), rate=0.1, steps=1)
    private = Private(torch.ones(40_000))
    place = private.unsafe_values()
    with pytest.raises(OSError, match="randomness"):
        release(mechanism, private, generator=Broken())
    assert not place.any()
    with refused(InvalidInput, "was released"):
        private.unsafe_values()


def test_what_is_refused_keeps_the_sum() -> None:
    private = Private(torch.ones(50))
    with refused(InvalidInput, "no scale"):
        release(MECHANISM.replace(noise=StudentT(9)), private, generator=Generator())
    assert private.unsafe_values().all()


def test_a_seed_is_stamped() -> None:
    assert release(MECHANISM, Private(torch.zeros(50)), generator=Generator(1)).reproducible
    assert not release(MECHANISM, Private(torch.zeros(50)), generator=Generator()).reproducible


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
