"""The `Mechanism`: the one frozen value that decides epsilon. What is trained is exactly what is accounted."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, replace
from typing import Any, Self

from noisette._guarantee import PROTECTED, advantage, attack_power, cautions, rounded_up, sentences
from noisette._quantization import Grid
from noisette._spec import Spec, canonical, parse, what, whole
from noisette.encoders import Encoder
from noisette.errors import InvalidInput, ParseError, Unaccountable
from noisette.noise import Noise
from noisette.sampling import EXAMPLE, UNIT, Poisson

__all__ = [
    "ADJACENCY",
    "COVERED",
    "FLAGS",
    "REAL",
    "Guarantee",
    "Mechanism",
    "Mechanisms",
    "mechanisms_hash",
    "normalize_flags",
    "privacy_unit",
    "to_mechanism_tuple",
]

_CANONICAL = "noisette mechanism 1"
_MOST_STEPS = 10**15  # far beyond any use, and well within what floats can count


@dataclass(frozen=True, init=False, repr=False)
class Mechanism(Spec):
    """One kind of step, taken `steps` times: encode, sum over a sample that is drawn as `sampling` says, add noise.

    `rate` is short for ``sampling=Poisson(rate)``. A noise whose scale is open may be calibrated, but not accounted or
    released; an encoder whose dimension is open gets it from the model, by `plan` or `make_private`.

    >>> from noisette.encoders import Ranked
    >>> from noisette.encoders.profiles import HalfNormal
    >>> from noisette.noise import StudentT
    >>> encoder = Ranked(dim=26010, profiles=HalfNormal())
    >>> Mechanism(encoder=encoder, noise=StudentT(df=9, scale=1.0), rate=256 / 60000, steps=14062).steps
    14062
    >>> sampling = Poisson(0.01, max_batch=700, population=60000)
    >>> Mechanism(encoder, StudentT(df=9, scale=1.0), sampling=sampling, steps=100).rate
    0.01
    """

    encoder: Encoder
    noise: Noise
    sampling: Poisson
    steps: int

    def __init__(
        self,
        encoder: Encoder,
        noise: Noise,
        rate: float | None = None,
        steps: int | None = None,
        *,
        sampling: Poisson | None = None,
    ) -> None:
        if not isinstance(encoder, Encoder):
            raise InvalidInput(f"encoder is {encoder!r}, not an Encoder.", hint="write for example L2(dim=26010)")
        if not isinstance(noise, Noise):
            raise InvalidInput(f"noise is {noise!r}, not a Noise.", hint="write for example Gaussian(scale=1.1)")
        if (rate is None) == (sampling is None):
            raise InvalidInput(
                f"{'neither' if rate is None else 'each'} of rate and sampling is given.",
                hint="give rate=256/60000, which is short for sampling=Poisson(256/60000), or the latter",
            )
        chosen = Poisson(rate) if sampling is None else sampling  # type: ignore[arg-type]
        if not isinstance(chosen, Poisson):
            raise InvalidInput(
                f"sampling is {chosen!r}, which no accountant here bounds.",
                hint="write Poisson(rate): shuffled passes and batches of a fixed size are other mechanisms",
            )
        self._set(encoder=encoder, noise=noise, sampling=chosen)
        self._set(steps=whole("steps", steps, least=0, most=_MOST_STEPS))
        # where the dimension is open, this is asked when it is filled
        ball = encoder.dim is not None and not encoder.image.profiles
        if ball and not noise.rotation_invariant:
            raise Unaccountable(
                f"the worst case of {type(noise).__name__} noise over an L2 ball is not known.",
                hint="use Gaussian noise, or an encoder whose image is a profile, like Ranked",
            )

    @property
    def rate(self) -> float:
        """The probability with which a unit joins a batch."""
        return self.sampling.rate

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; `rate` changes that of the sampling."""
        if "rate" in changes and "sampling" not in changes:
            changes["sampling"] = self.sampling.replace(rate=changes.pop("rate"))
        return super().replace(**changes)

    def _parts(self) -> dict[str, tuple[Any, Any]]:
        found = super()._parts()
        if self.sampling == Poisson(self.rate):  # texts and hashes have known it by its rate from the first
            found = {("rate" if name == "sampling" else name): part for name, part in found.items()}
            found["rate"] = self.rate, MISSING
        return found

    def __repr__(self) -> str:
        return f"Mechanism({', '.join(f'{name}={value!r}' for name, (value, _) in self._parts().items())})"

    @property
    def hash(self) -> str:
        """A name for exactly this value: SHA-256 of its canonical form, 16 hex digits."""
        return mechanisms_hash((self,))

    @property
    def grid(self) -> Grid:
        """Where sums and releases lie."""
        return Grid.of(self.encoder.max_coordinate, self.noise.known_scale)

    def to_toml(self) -> str:
        """TOML text that `from_toml` reads back to an equal value."""
        told = {name: value for name, (value, _) in self._parts().items()}
        return "".join(
            f"{name} = {_quote(repr(value)) if isinstance(value, Spec) else repr(value)}\n"
            for name, value in told.items()
        )

    @classmethod
    def from_toml(cls, text: str) -> Mechanism:
        """The mechanism that TOML text describes.

        >>> from noisette.encoders import L2
        >>> from noisette.noise import Gaussian
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
        if set(table) - {"rate", "sampling"} != {"encoder", "noise", "steps"} or len(table) != 4:
            raise ParseError(
                f"the TOML has the keys {sorted(table)}.", hint="it needs encoder, noise, steps, and rate or sampling"
            )
        encoder, noise = parse(str(table["encoder"]), Encoder), parse(str(table["noise"]), Noise)
        if "rate" in table:
            return cls(encoder, noise, table["rate"], table["steps"])
        return cls(encoder, noise, steps=table["steps"], sampling=parse(str(table["sampling"]), Poisson))


Mechanisms = tuple[Mechanism, ...]
"""What a run consists of where its steps differ (the paper's Z_1..Z_T): in order, each with its own steps."""


def to_mechanism_tuple(mechanisms: Any) -> Mechanisms:
    """One mechanism or several, as a tuple."""
    several = isinstance(mechanisms, Sequence) and not isinstance(mechanisms, str)
    found: tuple[Any, ...] = tuple(mechanisms) if several else (mechanisms,)
    for one in found:
        if not isinstance(one, Mechanism):
            raise InvalidInput(
                f"{'one of the mechanisms' if several else 'the mechanism'} is {what(one)}, not a Mechanism.",
                hint="read a text by parse(text, Mechanism)"
                if isinstance(one, str)
                else "write Mechanism(encoder, noise, rate, steps), or let plan(...) make it",
            )
    return found


def mechanisms_hash(mechanisms: Iterable[Spec]) -> str:
    """A name for mechanisms in their order: SHA-256 of their canonical form, 16 hex digits.

    It lasts: a field with a default that a later version adds changes no name. Change `_CANONICAL` when a default does.
    """
    return hashlib.sha256("\n".join((_CANONICAL, *map(canonical, mechanisms))).encode()).hexdigest()[:16]


ADJACENCY = {
    EXAMPLE: "add/remove one example, Poisson sampling",
    UNIT: "add/remove one unit with all its examples, Poisson sampling",
}
"""What a guarantee is for, by what the sampling draws."""


def privacy_unit(mechanisms: Mechanisms) -> str:
    """What `mechanisms` draw, "example" or "unit": all the same."""
    found = {mechanism.sampling.unit for mechanism in mechanisms}
    if len(found) > 1:
        raise Unaccountable(
            "some of these mechanisms protect an example, others a unit with all its examples.",
            hint="account for them apart: the two promises do not add up to one",
        )
    return found.pop() if found else EXAMPLE


FLAGS = {
    "estimate": "estimate",
    "inexact": "inexact: real numbers only",
    "reproducible": "reproducible: not for release",
    "unsafe": "unsafe: private metrics were shown, which it does not cover",
}
"""What can qualify a guarantee, and how that is said to people."""


def normalize_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """`flags` without repetition, in the order of `FLAGS`.

    >>> normalize_flags(["unsafe", "estimate", "unsafe"])
    ('estimate', 'unsafe')
    """
    given = set(flags)
    if unknown := given - set(FLAGS):
        raise InvalidInput(f"{unknown.pop()!r} is not a stamp.", hint=f"flags are {', '.join(FLAGS)}")
    return tuple(name for name in FLAGS if name in given)


COVERED, REAL = "covered", "real numbers only"
"""Whether a guarantee holds for what is computed in floats."""


@dataclass(frozen=True)
class Guarantee:
    """What mechanisms promise: (epsilon, delta)-differential privacy for adding or removing one example, or one unit.

    `adjacency` says which.

    `kind` is "bound", or "estimate" where a law's symmetry and unimodality are only checked numerically. `basis` says
    how a set of profiles was bounded. `arithmetic` is "covered" where epsilon holds for the floats that are released,
    `arithmetic_epsilon` of it being what that costs; or "real numbers only". `flags` qualify the epsilon wherever it
    is shown: "estimate"; "inexact", whose gradients were not the same to the last bit in every company;
    "reproducible", whose noise comes from a seed; "unsafe", beside which private values were shown.

    >>> print(Guarantee(1.0, 1e-5, "pld", "bound", "0" * 16, "profile").with_flags("reproducible"))
    epsilon = 1.000 at delta = 1e-05 (reproducible: not for release)
    """

    epsilon: float
    delta: float
    accountant: str
    kind: str
    mechanism_hash: str
    basis: str
    adjacency: str = ADJACENCY[EXAMPLE]
    flags: tuple[str, ...] = ()
    arithmetic: str = REAL
    arithmetic_epsilon: float = 0.0

    def __post_init__(self) -> None:
        own = () if self.kind == "bound" else ("estimate",)
        object.__setattr__(self, "flags", normalize_flags((*self.flags, *own)))
        if "inexact" in self.flags:
            object.__setattr__(self, "arithmetic", REAL)

    @property
    def arithmetic_summary(self) -> str:
        """The arithmetic in words, with what it costs."""
        cost = f", for {self.arithmetic_epsilon:.1g} of epsilon" if self.arithmetic == COVERED else ""
        return f"floating-point arithmetic: {self.arithmetic}{cost}"

    def with_flags(self, *flags: str) -> Self:
        """The same promise with more `flags`."""
        return replace(self, flags=(*self.flags, *flags))

    @property
    def qualification(self) -> str:
        """The flags in words, in brackets behind a space; empty where there are none."""
        return f" ({'; '.join(FLAGS[name] for name in self.flags)})" if self.flags else ""

    def explain(self) -> str:
        """What this means for one person: four plain sentences, behind one for every stamp.

        The numbers are those that epsilon and delta leave to any test, so they hold for every mechanism with this
        promise. A run's own trade-off curve gives smaller ones: ``noisette show RUN --statement`` tells these.

        >>> print(Guarantee(1.0, 1e-5, "pld", "bound", "0" * 16, "profile").explain().splitlines()[2])
        If a fair coin had decided whether to use your example, nobody could tell how the coin fell with a chance of
        more than 73.2%; blind guesses are right with 50%.
        """
        told = sentences(
            self.epsilon,
            self.delta,
            lambda alarms: attack_power(self.epsilon, self.delta, alarms),
            advantage(self.epsilon, self.delta),
            person=self.adjacency == ADJACENCY[UNIT],
        )
        return "\n".join((*cautions(self.flags), *told))

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON, and what they protect in words."""
        protects = PROTECTED[self.adjacency == ADJACENCY[UNIT]]
        return asdict(self) | {"flags": list(self.flags), "protects": protects}

    def __str__(self) -> str:
        return f"epsilon = {rounded_up(self.epsilon)} at delta = {self.delta:g}{self.qualification}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
