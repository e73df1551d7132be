"""Chains: parts in order, states apart, one lookahead."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisette import Generator, parse
from noisette.denoisers import KS, Chain, Denoiser, Identity, JamesStein, Kalman, LowPass, Score, Wasserstein
from noisette.errors import InvalidInput
from noisette.noise import Cauchy, Gaussian, GeneralizedGaussian, Laplace
from tests.support.helpers import refused
from tests.support.released_streams import vector

NOISE = Laplace(1.0)


def test_parts_in_order() -> None:
    """The same as applying them by hand, state by state."""
    parts = (Score(), LowPass(beta=0.5), Kalman(gain=0.4))
    chain = Chain(parts)
    state = chain.init(NOISE, 6)
    own = [part.init(NOISE, 6) for part in parts]
    generator = Generator(1)
    for _ in range(5):
        released = vector(NOISE.sample((6,), generator), NOISE)
        found, state = chain.update(released, state)
        for number, part in enumerate(parts):
            released, own[number] = part.update(released, own[number])
        assert torch.equal(found.values, released.values)
    assert set(state) == {"1.average", "1.step", "2.estimate", "2.step"}
    assert torch.equal(state["1.average"], own[1]["average"])
    assert torch.equal(state["2.estimate"], own[2]["estimate"])


def test_order_matters() -> None:
    released = vector(np.linspace(-1, 3, 9), NOISE)
    one = Chain((KS(), Score())).update(released, {})[0].values
    other = Chain((Score(), KS())).update(released, {})[0].values
    assert not torch.allclose(one, other)


def test_more_than_ten_parts() -> None:
    """State 1 is not mistaken for state 10 and following."""
    chain = Chain(tuple(LowPass(beta=number / 20) for number in range(12)))
    state = chain.init(NOISE, 2)
    assert len(state) == 24
    _, state = chain.update(vector([1.0, 2.0], NOISE), state)
    assert all(int(entry) == 1 for name, entry in state.items() if name.endswith("step"))


def test_lookahead() -> None:
    assert Chain((KS(), Identity())).lookahead == 0.0
    assert Chain((KS(), Kalman(gain=0.25))).lookahead == 3.0
    assert Chain((Kalman(gain=1.0), Kalman(gain=0.5))).lookahead == 1.0
    assert Chain((Chain((Kalman(gain=0.5),)), LowPass())).lookahead == 1.0
    for parts in ((Kalman(), Kalman()), (Kalman(), KS(), Kalman(gain=0.5)), (Chain((Kalman(),)), Kalman())):
        with refused(InvalidInput, "different points"):
            Chain(parts)


@pytest.mark.parametrize(
    ("part", "noise", "dim"),
    [
        (Wasserstein(), Cauchy(1.0), 9),
        (JamesStein(), Cauchy(1.0), 9),
        (JamesStein(), Gaussian(1.0), 2),
        (Score(), GeneralizedGaussian(0.4, 1.0), 9),
    ],
    ids=repr,
)
def test_a_part_may_refuse(part: Denoiser, noise: Cauchy, dim: int) -> None:
    for chain in (Chain((LowPass(), part)), Chain((Identity(), Chain((part,))))):
        with refused(InvalidInput):
            chain.init(noise, dim)


def test_bad_parts() -> None:
    with refused(InvalidInput, "no parts"):
        Chain(())
    with refused(InvalidInput, "not a tuple"):
        Chain(KS())  # type: ignore[arg-type]
    for bad in ("KS()", None, Gaussian(1.0), KS):
        with refused(InvalidInput, "not a Denoiser"):
            Chain((KS(), bad))  # type: ignore[arg-type]


def test_text() -> None:
    assert parse("Chain((KS(), Kalman(1/2)))", Denoiser) == Chain((KS(), Kalman(gain=0.5)))
    assert parse("Chain(denoisers=[KS()])", Denoiser) == Chain((KS(),))
    assert hash(Chain([KS()])) == hash(Chain((KS(),)))  # type: ignore[arg-type]
