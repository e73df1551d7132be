"""The `Mechanism`: the one frozen value that decides epsilon. What is trained is exactly what is accounted."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from noisette.encode import Encoder
from noisette.errors import InvalidInput, ParseError, Unaccountable
from noisette.grid import Grid
from noisette.noise import Noise
from noisette.spec import Spec, canonical, parse, positive, whole

__all__ = ["STAMPS", "Guarantee", "Mechanism", "Mechanisms", "as_mechanisms", "hash_of", "in_order"]

_CANONICAL = "noisette mechanism 1"
_LEAST_RATE, _MOST_STEPS = 1e-30, 10**15  # far beyond any use, and well within what floats can count


@dataclass(frozen=True)
class Mechanism(Spec):
    """One kind of step, taken `steps` times: encode, sum over a Poisson sample of rate `rate`, add noise.

    A noise whose scale is open may be calibrated, but not accounted or released; an encoder whose dimension is open
    gets it from the model, by `plan` or `make_private`.

    >>> from noisette import HalfNormal, Ranked, StudentT
    >>> encoder = Ranked(dim=26010, profiles=HalfNormal())
    >>> Mechanism(encoder=encoder, noise=StudentT(df=9, scale=1.0), rate=256 / 60000, steps=14062).steps
    14062
    """

    encoder: Encoder
    noise: Noise
    rate: float
    steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder):
            raise InvalidInput(f"encoder is {self.encoder!r}, not an Encoder.", hint="write for example L2(dim=26010)")
        if not isinstance(self.noise, Noise):
            raise InvalidInput(f"noise is {self.noise!r}, not a Noise.", hint="write for example Gaussian(scale=1.1)")
        rate = positive("rate", self.rate, hint="the rate is expected batch / examples, like 256/60000")
        if rate > 1:
            raise InvalidInput(f"rate is {self.rate!r}, outside (0, 1].", hint="the rate is expected batch / examples")
        if rate < _LEAST_RATE:
            raise InvalidInput(f"rate is {self.rate!r}: no data set is as large.", hint="check batch and examples")
        self._set(rate=rate, steps=whole("steps", self.steps, least=0, most=_MOST_STEPS))
        # where the dimension is open, this is asked when it is filled
        ball = self.encoder.dim is not None and not self.encoder.image.profiles
        if ball and not self.noise.rotation_invariant:
            raise Unaccountable(
                f"the worst case of {type(self.noise).__name__} noise over an L2 ball is not known.",
                hint="use Gaussian noise, or an encoder whose image is a profile, like Ranked",
            )

    @property
    def hash(self) -> str:
        """A name for exactly this value: SHA-256 of its canonical form, 16 hex digits."""
        return hash_of((self,))

    @property
    def grid(self) -> Grid:
        """Where sums and releases lie."""
        return Grid.of(self.encoder.largest, self.noise.known_scale)

    def to_toml(self) -> str:
        """TOML text that `from_toml` reads back to an equal value."""
        texts = f"encoder = {_quote(repr(self.encoder))}\nnoise = {_quote(repr(self.noise))}\n"
        return texts + f"rate = {self.rate!r}\nsteps = {self.steps}\n"

    @classmethod
    def from_toml(cls, text: str) -> Mechanism:
        """The mechanism that TOML text describes.

        >>> from noisette import L2, Gaussian
        >>> mechanism = Mechanism(L2(dim=10), Gaussian(scale=1.0), rate=0.1, steps=5)
        >>> Mechanism.from_toml(mechanism.to_toml()) == mechanism
        True
        """
        try:
            table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ParseError(
                f"the text is not TOML: {error}.", hint="write encoder, noise, rate and steps, one a line"
            ) from None
        if set(table) != {"encoder", "noise", "rate", "steps"}:
            raise ParseError(f"the TOML has the keys {sorted(table)}.", hint="it needs encoder, noise, rate and steps")
        encoder, noise = parse(str(table["encoder"]), Encoder), parse(str(table["noise"]), Noise)
        return cls(encoder, noise, table["rate"], table["steps"])


Mechanisms = tuple[Mechanism, ...]
"""What a run consists of where its steps differ (the paper's Z_1..Z_T): in order, each with its own steps."""


def as_mechanisms(mechanisms: Mechanism | Sequence[Mechanism]) -> Mechanisms:
    """One mechanism or several, as a tuple."""
    return (mechanisms,) if isinstance(mechanisms, Mechanism) else tuple(mechanisms)


def hash_of(mechanisms: Mechanisms) -> str:
    """A name for mechanisms in their order: SHA-256 of their canonical form, 16 hex digits.

    It lasts: a field with a default that a later version adds changes no name. Change `_CANONICAL` when a default does.
    """
    return hashlib.sha256("\n".join((_CANONICAL, *map(canonical, mechanisms))).encode()).hexdigest()[:16]


STAMPS = {
    "estimate": "estimate",
    "reproducible": "reproducible: not for release",
    "unsafe": "unsafe: private metrics were shown, which it does not cover",
}
"""What can qualify a guarantee, and how that is said to people."""


def in_order(stamps: Iterable[str]) -> tuple[str, ...]:
    """`stamps` without repetition, in the order of `STAMPS`.

    >>> in_order(["unsafe", "estimate", "unsafe"])
    ('estimate', 'unsafe')
    """
    given = set(stamps)
    if unknown := given - set(STAMPS):
        raise InvalidInput(f"{unknown.pop()!r} is not a stamp.", hint=f"stamps are {', '.join(STAMPS)}")
    return tuple(name for name in STAMPS if name in given)


@dataclass(frozen=True)
class Guarantee:
    """What mechanisms promise: (epsilon, delta)-differential privacy for adding or removing one example.

    `kind` is "bound", or "estimate" where a law's symmetry and unimodality are only checked numerically. `basis` says
    how a set of profiles was bounded. `stamps` qualify the epsilon wherever it is shown: "estimate"; "reproducible",
    whose noise comes from a seed; "unsafe", beside which private values were shown.

    >>> print(Guarantee(1.0, 1e-5, "pld", "bound", "0" * 16, "profile").stamped("reproducible"))
    epsilon = 1 at delta = 1e-05 (reproducible: not for release)
    """

    epsilon: float
    delta: float
    accountant: str
    kind: str
    mechanism_hash: str
    basis: str
    adjacency: str = "add/remove one example, Poisson sampling"
    stamps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own = () if self.kind == "bound" else ("estimate",)
        object.__setattr__(self, "stamps", in_order((*self.stamps, *own)))

    def stamped(self, *stamps: str) -> Self:
        """The same promise with more `stamps`."""
        return replace(self, stamps=(*self.stamps, *stamps))

    @property
    def qualification(self) -> str:
        """The stamps in words, in brackets behind a space; empty where there are none."""
        return f" ({'; '.join(STAMPS[name] for name in self.stamps)})" if self.stamps else ""

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self) | {"stamps": list(self.stamps)}

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g}{self.qualification}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
