"""Several denoisers, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from noisette._private import Released
from noisette._spec import entries
from noisette.denoisers.base import Denoiser, State
from noisette.denoisers.identity import Identity
from noisette.denoisers.kalman import Kalman
from noisette.denoisers.ks import KS
from noisette.denoisers.low_pass import LowPass
from noisette.errors import InvalidInput
from noisette.noise import Noise


@dataclass(frozen=True)
class Chain(Denoiser):
    """Apply `parts` in order, each to what the one before it made of the vector.

    The noise law that comes with the vector stays that of the release, so parts that read it (distances, `Score`,
    `JamesStein`) belong in front of filters. Only one part may ask for gradients at a point ahead.

    >>> Chain(denoisers=(KS(), Kalman(gain=0.5))).lookahead
    1.0
    """

    denoisers: tuple[Denoiser, ...]

    def __post_init__(self) -> None:
        self._set(denoisers=entries("parts", self.denoisers))
        if not self.denoisers:
            raise InvalidInput("a chain has no parts.", hint="write Identity() for no denoising")
        for part in self.denoisers:
            if not isinstance(part, Denoiser):
                raise InvalidInput(f"a chain holds {part!r}, not a Denoiser.", hint="write for example Chain((KS(),))")
        if sum(part.lookahead != 0 for part in self.denoisers) > 1:
            raise InvalidInput(
                "two parts of a chain ask for gradients at different points.", hint="keep one Kalman, or use LowPass"
            )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls((KS(), Kalman())),
            cls((Identity(),)),
            cls((LowPass(beta=0.5), LowPass(beta=0.8))),
            cls((KS(), cls((LowPass(), Identity())), Kalman(gain=0.5))),
        )

    @property
    def lookahead(self) -> float:
        """That of the one part that has any."""
        return sum(part.lookahead for part in self.denoisers)

    def _validate(self, noise: Noise, dim: int) -> None:
        for part in self.denoisers:
            part._validate(noise, dim)

    def _init_state(self, dim: int) -> State:
        return {
            f"{number}.{name}": entry
            for number, part in enumerate(self.denoisers)
            for name, entry in part._init_state(dim).items()
        }

    def _update(self, released: Released, state: State) -> tuple[torch.Tensor, State]:
        following: State = {}
        for number, part in enumerate(self.denoisers):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): entry for name, entry in state.items() if name.startswith(prefix)}
            released, own = part.update(released, own)
            following |= {prefix + name: entry for name, entry in own.items()}
        return released.values, following
