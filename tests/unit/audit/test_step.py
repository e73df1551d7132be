"""The audit of a step sees what is broken, and nothing else. Seeds are fixed; an audit's level is 1e-4.

What it sees and how often is counted in test_a_few.py, and in full in test_full_counts.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from noisette import Encoder, Mechanism, Noise, Private, Released
from noisette.audit import audit, step
from noisette.audit.step import attacks
from noisette.encoders import Image, Ranked
from noisette.noise import Laplace
from noisette.training import PoissonSampler, PrivateRun, private_run
from tests.support.audited_mechanisms import FEW, ball, quieter
from tests.support.helpers import refused

SMALL = Mechanism(Ranked(dim=20, profiles=FEW), Laplace(scale=1.0), rate=0.2, steps=1)


def test_an_honest_mechanism_passes() -> None:
    found = audit(SMALL, steps=100, seed=1)
    assert found.verdict == "consistent with the claim", found.reasons
    assert not found.refuted
    assert len(found.points) == 3 * 2 * 8
    assert set(found.claimed) == set(found.residuals) == {"every example", "tiny noise", "as set"}


def test_noise_times_0_7_is_caught_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the likelihood ratio alone, and by the residuals alone."""
    quieter(monkeypatch, 0.7)
    found = next(attacks(SMALL, steps=1000, level=1e-4, seed=1))
    assert sum(point.refutes for point in found.points) >= 5
    assert found.residuals < 1e-6
    assert ["under the claimed curve" in reason for reason in found.reasons] == [True, False]


def test_noise_times_0_9_is_caught_by_the_residuals(monkeypatch: pytest.MonkeyPatch) -> None:
    quieter(monkeypatch, 0.9)
    found = next(attacks(SMALL, steps=500, level=1e-4, seed=1))
    assert found.reasons
    assert found.residuals < 1e-6


def test_more_noise_than_claimed_is_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    quieter(monkeypatch, 1.3)
    found = audit(SMALL, steps=100, seed=1)
    assert found.verdict == "REFUTED"
    assert not any(point.refutes for point in found.points), "it is more private, not less"


def _sampled_twice_as_often(patch: pytest.MonkeyPatch) -> None:
    honest = PoissonSampler.__init__

    def twice(self: Any, examples: int, rate: float, *others: Any) -> None:
        honest(self, examples, min(1.0, 2 * rate), *others)

    patch.setattr(PoissonSampler, "__init__", twice)


def _counted_twice(patch: pytest.MonkeyPatch) -> None:
    honest = PrivateRun._encode_batch_sum

    def twice(self: Any, mechanism: Mechanism) -> Private:
        total = honest(self, mechanism)
        return total + total

    patch.setattr(PrivateRun, "_encode_batch_sum", twice)


def _not_encoded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Encoder, "encode_sum", lambda self, rows, groups=None: Private(rows.double().sum(dim=0)))


def _profile_too_long(patch: pytest.MonkeyPatch) -> None:
    honest = Encoder.encode_sum

    def longer(self: Encoder, *args: Any) -> Private:
        return Private(1.05 * honest(self, *args).unsafe_values())

    patch.setattr(Encoder, "encode_sum", longer)


def _image_too_small(patch: pytest.MonkeyPatch) -> None:
    honest = Encoder.image.fget
    assert honest is not None
    patch.setattr(
        Encoder,
        "image",
        property(lambda self: Image(honest(self).norm, tuple(b.scaled(0.9) for b in honest(self).profiles))),
    )


def _no_noise_on_an_empty_batch(patch: pytest.MonkeyPatch) -> None:
    honest = private_run.release

    def skipping(mechanism: Mechanism, total: Private, **options: Any) -> Released:
        empty = not total.unsafe_values().any()
        out = honest(mechanism, total, **options)
        return out if not empty else Released(torch.zeros(total.dim).double(), out.noise, True)

    patch.setattr(private_run, "release", skipping)


def _the_same_noise_again(patch: pytest.MonkeyPatch) -> None:
    honest, kept = Noise.sample, {}

    def repeated(self: Noise, *args: Any) -> torch.Tensor:
        return kept.setdefault(self, honest(self, *args))

    patch.setattr(Noise, "sample", repeated)


def _noise_on_half_of_the_coordinates(patch: pytest.MonkeyPatch) -> None:
    honest = Noise.sample

    def half(self: Noise, *args: Any) -> torch.Tensor:
        out = honest(self, *args)
        out[: len(out) // 2] = 0
        return out

    patch.setattr(Noise, "sample", half)


@pytest.mark.parametrize(
    ("plant", "says", "steps"),
    [
        (_counted_twice, "under the claimed curve", 350),
        (_not_encoded, "outside the encoder's image", 50),
        (_profile_too_long, "outside the encoder's image", 50),
        (_image_too_small, "outside the encoder's image", 50),
        (_no_noise_on_an_empty_batch, "does not follow", 50),
        (_the_same_noise_again, "does not follow", 50),
        (_noise_on_half_of_the_coordinates, "does not follow", 50),
    ],
)
def test_faults_are_seen(plant: Any, says: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(says in reason for reason in _reasons(steps)), "regimes after the first that sees it are not run"


def test_a_sampler_that_takes_twice_as_many_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every batch shows who was in it, which is the second regime."""
    honest = step._regimes
    monkeypatch.setattr(step, "_regimes", lambda *given: islice(honest(*given), 1, 2))
    _sampled_twice_as_often(monkeypatch)
    (found,) = attacks(SMALL, steps=1000, level=1e-4, seed=1)
    assert found.regime == "tiny noise"
    assert found.reasons


def _reasons(steps: int) -> Iterator[str]:
    """What an audit would give for reasons, while it runs."""
    for attack in attacks(SMALL, steps=steps, level=1e-4, seed=1):
        yield from (f"{attack.regime}: {reason}" for reason in attack.reasons)


def test_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = ball().replace(encoder=ball().encoder.replace(micro_batch=2))
    assert not audit(pairs, steps=60, seed=1).refuted
    monkeypatch.setattr(Encoder, "image", property(lambda self: self._image_of_one))
    found = audit(pairs.replace(noise=pairs.noise.replace(scale=1.01)), steps=60, seed=1)
    assert any("outside the encoder's image" in reason for reason in found.reasons)


def test_seeds_repeat_and_differ() -> None:
    one, same, other, free = (next(attacks(ball(), steps=60, level=1e-4, seed=seed)) for seed in (1, 1, 2, None))
    assert one.points == same.points
    assert len({one.points, other.points, free.points}) == 3


def test_progress_and_json() -> None:
    told: list[tuple[int, int]] = []
    found = audit(ball(), steps=100, seed=1, progress=lambda *pair: told.append(pair))
    assert told[-1] == (600, 600)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    value = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(value) >= {"verdict", "level", "points", "claimed"}
    for name, curve in value["claimed"].items():
        x, y = np.array(curve).T
        np.testing.assert_allclose(y, found.claimed[name].false_negative(x))


@pytest.mark.parametrize(
    ("options", "words"), [({"steps": 3}, "steps is 3"), ({"level": 0.0}, "level is 0"), ({"level": 1.5}, "level")]
)
def test_errors(options: dict[str, Any], words: str) -> None:
    with refused(match=words):
        audit(ball(), **options)


def test_an_open_scale_is_refused() -> None:
    with refused(match="no scale"):
        audit(ball().replace(noise=ball().noise.replace(scale=None)))
