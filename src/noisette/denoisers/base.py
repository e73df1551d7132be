"""What a denoiser must say about itself: the state it starts from, and what it makes of a released vector."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Self

import torch

from noisette._private import Released
from noisette._spec import Spec, whole
from noisette.errors import InvalidInput
from noisette.noise import Noise

__all__ = ["Denoiser", "State"]

State = dict[str, torch.Tensor]
"""What a denoiser remembers from step to step: tensors only, so that a checkpoint loads with ``weights_only``."""


class Denoiser(Spec):
    """A pure function of a released vector, its noise law and its own state: post-processing, so privacy is untouched.

    A leaf says `_update`, and where it needs them `_start` (its first state) and `_check` (the laws and dimensions it
    is not for). Neither argument may be changed, and a state shares no memory with a vector, so that whoever scales
    a result in place does not reach into the memory of the next step.

    **Formal guarantees.** Any function of a release costs no privacy. `update` is given nothing else, and refuses a
    `Private`.
    """

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """A few valid members, for tests and for error messages."""

    @abstractmethod
    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        """The new values, float64 (dim,), and the next state; the arguments are checked by then."""

    def _init_state(self, dim: int) -> State:  # noqa: ARG002 - most denoisers remember nothing
        """The state before the first step; its keys, shapes and dtypes stay the same ever after."""
        return {}

    def _validate(self, noise: Noise, dim: int) -> None:
        """Raise `InvalidInput` where this denoiser makes no sense."""

    @property
    def lookahead(self) -> float:
        """Gradients are to be taken at theta + lookahead * (theta - previous theta), which are public values."""
        return 0.0

    def init(self, noise: Noise, dim: int) -> State:
        """The state before the first step on vectors of `dim` coordinates released with `noise`.

        >>> from noisette.noise import Gaussian
        >>> from noisette.denoisers import LowPass
        >>> LowPass(beta=0.9).init(Gaussian(scale=1.0), dim=2)
        {'average': tensor([0., 0.], dtype=torch.float64), 'step': tensor(0)}
        """
        if not isinstance(noise, Noise):
            raise InvalidInput(f"noise is {noise!r}, not a Noise.", hint="pass mechanism.noise")
        _ = noise.known_scale
        dim = whole("dim", dim, least=1)
        self._validate(noise, dim)
        return self._init_state(dim)

    def update(self, released: Released, state: State) -> tuple[Released, State]:
        """The denoised vector and the next state. Values are float64 (dim,); noise and mark are carried over.

        >>> from noisette import Released
        >>> from noisette.noise import Gaussian
        >>> from noisette.denoisers import LowPass
        >>> denoiser, noise = LowPass(beta=0.9), Gaussian(scale=1.0)
        >>> released = Released(torch.tensor([1.0, -2.0], dtype=torch.float64), noise, reproducible=False)
        >>> denoised, state = denoiser.update(released, denoiser.init(noise, dim=2))
        >>> denoised.values
        tensor([ 1., -2.], dtype=torch.float64)
        """
        check_released(released)
        dim = released.values.numel()
        self._validate(released.noise, dim)
        self._check_state(state, dim)
        values, following = self._update(released, state)
        return Released(values, released.noise, released.reproducible), following

    def _check_state(self, state: State, dim: int) -> None:
        with torch.device("meta"):  # shapes only
            expected = {name: (entry.dtype, entry.shape) for name, entry in self._init_state(dim).items()}
        if {name: (entry.dtype, entry.shape) for name, entry in state.items()} != expected:
            raise InvalidInput(
                f"a state of {sorted(state)} does not belong to {self!r} on {dim} coordinates.",
                hint="start from init(noise, dim), or from the checkpoint of a run with the same denoiser and model",
            )


def check_released(released: Released) -> None:
    """Raise `InvalidInput` unless `released` is a released vector of finite numbers, float64 (dim,)."""
    if not isinstance(released, Released):
        raise InvalidInput(
            f"a {type(released).__name__} is not a released vector.", hint="pass what noisette.release returns"
        )
    values = released.values
    if values.ndim != 1 or values.numel() == 0 or values.dtype != torch.float64:
        raise InvalidInput(
            f"released values of shape {tuple(values.shape)} and dtype {values.dtype} are not a float64 vector.",
            hint="pass what noisette.release returns",
        )
    if not all(map(math.isfinite, torch.aminmax(values))):  # a NaN shows in both, and one pass is enough
        raise InvalidInput(
            "the released vector holds a number that is not finite.", hint="use a noise with lighter tails"
        )
