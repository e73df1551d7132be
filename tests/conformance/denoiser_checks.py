"""What must hold for every denoiser: P12, post-processing that can be recomputed from what was released."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import pytest
import torch

from noisette import Generator, Noise, Private, Released, parse
from noisette._spec import registered
from noisette.denoisers import Denoiser, State
from noisette.errors import InvalidInput
from noisette.noise import Gaussian
from tests.support.helpers import assert_well_formed, refused

DIM = 40
STEPS = 6
LAWS = [law.examples()[0] for law in registered(Noise).values()]


def releases(noise: Noise, dim: int = DIM, steps: int = STEPS) -> list[Released]:
    """Noise around a slowly turning signal, as a run would release it; one step has no signal at all."""
    ramp = torch.linspace(-2, 2, dim, dtype=torch.float64) * noise.known_scale
    generator = Generator(5)
    return [
        Released(noise.sample((dim,), generator) + math.sin(step) * ramp, noise, reproducible=True)
        for step in range(steps)
    ]


def suited(denoiser: Denoiser) -> list[tuple[Noise, State]]:
    """The laws that the denoiser takes, with its first state; the others it must refuse with a hint."""
    found, refusals = [], []
    for noise in LAWS:
        try:
            found.append((noise, denoiser.init(noise, DIM)))
        except InvalidInput as error:
            refusals.append((noise, error))
    for noise, error in refusals:
        assert_well_formed(error)
        assert repr(noise) in error.sentence
    assert found, "a denoiser for no law at all"
    return found


def run(denoiser: Denoiser, stream: list[Released], state: State) -> tuple[list[torch.Tensor], State]:
    """The denoised vectors, copied, and the last state."""
    results = []
    for released in stream:
        denoised, state = denoiser.update(released, state)
        results.append(denoised.values.clone())
    return results, state


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def loaded(data: bytes) -> State:
    return torch.load(io.BytesIO(data), weights_only=True)


def same(a: State, b: State) -> bool:
    """Equal to the last bit, signs of zero included."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].numpy().tobytes() == b[name].numpy().tobytes() for name in a
    )


def check_text(denoiser: Denoiser) -> None:
    """The text parses back to an equal, hashable, frozen value; lookahead is a plain number."""
    again = parse(repr(denoiser), Denoiser)
    assert again == denoiser
    assert hash(again) == hash(denoiser)
    assert repr(again) == repr(denoiser)
    with pytest.raises(AttributeError):
        denoiser.lookahead = 1.0  # type: ignore[misc]
    assert 0 <= denoiser.lookahead < math.inf


def check_result(denoiser: Denoiser) -> None:
    """A finite float64 vector of the same length, with the noise and the mark that came in."""
    for noise, start in suited(denoiser):
        state = start
        for released in releases(noise):
            denoised, state = denoiser.update(released, state)
            assert isinstance(denoised, Released)
            assert denoised.values.dtype == torch.float64
            assert denoised.values.shape == (DIM,)
            assert torch.isfinite(denoised.values).all()
            assert denoised.noise is released.noise
            assert denoised.reproducible is released.reproducible
            secure = Released(released.values, noise, reproducible=False)
            assert denoiser.update(secure, state)[0].reproducible is False


def check_post_processing(denoiser: Denoiser) -> None:
    """P12: from the stored releases alone the same results come out, to the last bit, whatever else is going on."""
    for noise, start in suited(denoiser):
        stream = releases(noise)
        stored = saved({str(step): released.values for step, released in enumerate(stream)})
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first, last = run(denoiser, stream, start)
        assert torch.equal(torch.get_rng_state(), before), "draws random numbers"
        torch.manual_seed(2)
        again = [Released(values, noise, reproducible=True) for values in loaded(stored).values()]
        twin = parse(repr(denoiser), Denoiser)
        second, last_again = run(twin, again, twin.init(noise, DIM))
        for a, b in zip(first, second, strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes(), "not a function of the releases"
        assert same(last, last_again)


def check_arguments(denoiser: Denoiser) -> None:
    """Neither the released vector nor the state is changed, and no state shares memory with a vector."""
    for noise, start in suited(denoiser):
        state = start
        for released in releases(noise):
            values, old = released.values.clone(), {name: entry.clone() for name, entry in state.items()}
            denoised, following = denoiser.update(released, state)
            assert torch.equal(released.values, values), "the released vector was changed"
            assert same(state, old), "the state was changed"
            assert following is not state
            vectors = {released.values.untyped_storage().data_ptr(), denoised.values.untyped_storage().data_ptr()}
            for entry in following.values():
                assert entry.untyped_storage().data_ptr() not in vectors, "a state shares memory with a vector"
            state = following


def check_state(denoiser: Denoiser) -> None:
    """Tensors only, of constant shape; a run resumed from a saved state goes on as if it had not stopped."""
    for noise, start in suited(denoiser):
        stream = releases(noise)
        whole, last = run(denoiser, stream, start)
        _, half = run(denoiser, stream[:3], start)
        for state in (start, half, last):
            assert all(isinstance(entry, torch.Tensor) for entry in state.values())
            assert {name: (e.dtype, e.shape) for name, e in state.items()} == {
                name: (e.dtype, e.shape) for name, e in start.items()
            }
            assert same(loaded(saved(state)), state)
        rest, end = run(denoiser, stream[3:], loaded(saved(half)))
        assert all(torch.equal(a, b) for a, b in zip(whole[3:], rest, strict=True)), "a resumed run differs"
        assert same(end, last)


def check_bad_input(denoiser: Denoiser) -> None:
    """A private sum, numbers that are none, and a state from elsewhere are refused with a hint."""
    noise, state = suited(denoiser)[0]
    values = releases(noise)[0].values
    for wrong in (Private(values), values, None):
        with refused(InvalidInput, "is not a released vector"):
            denoiser.update(wrong, state)  # type: ignore[arg-type]
    for tensor in (values.float(), values.reshape(2, -1), values[:0], values.round().long()):
        with refused(InvalidInput, "not a float64 vector"):
            denoiser.update(Released(tensor, noise, reproducible=True), state)
    for bad in (math.nan, math.inf, -math.inf):
        broken = values.clone()
        broken[7] = bad
        with refused(InvalidInput, "not finite"):
            denoiser.update(Released(broken, noise, reproducible=True), state)
    good = Released(values, noise, reproducible=True)
    strangers: list[State] = [{**state, "stranger": torch.zeros(1)}]
    if state:
        strangers += [{}, denoiser.init(noise, DIM + 1), {name: entry.float() for name, entry in state.items()}]
    for stranger in strangers:
        with refused(InvalidInput, "does not belong"):
            denoiser.update(good, stranger)
    with refused(InvalidInput, "not a Noise"):
        denoiser.init("Gaussian(scale=1.0)", DIM)  # type: ignore[arg-type]
    with refused(InvalidInput, "no scale"):
        denoiser.init(Gaussian(), DIM)
    for dim in (0, -1, 2.5, "40", True):
        with refused(InvalidInput, "dim"):
            denoiser.init(noise, dim)  # type: ignore[arg-type]


DENOISER_CHECKS: tuple[Callable[[Denoiser], None], ...] = (
    check_text,
    check_result,
    check_post_processing,
    check_arguments,
    check_state,
    check_bad_input,
)
