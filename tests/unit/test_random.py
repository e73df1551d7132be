"""P5: noise is unpredictable and never repeats; a seed makes it reproducible and marks it."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from noisette import Generator
from noisette.errors import InvalidInput
from noisette.noise import Gaussian, StudentT
from tests.support.helpers import refused


def test_global_seeds_do_not_touch_it() -> None:
    """Two runs under the same torch, numpy and python seeds draw different noise."""
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - the global state is the point
        random.seed(0)
        draws.append(StudentT(9, 1.0).sample((50,), Generator()))
    assert not torch.equal(*draws)
    assert not set(draws[0].tolist()) & set(draws[1].tolist())


def test_it_does_not_touch_global_seeds() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Gaussian(1.0).sample((100,), Generator())
    assert torch.equal(torch.rand(3), expected)


def test_generators_differ() -> None:
    words = np.concatenate([Generator().random_words(1000) for _ in range(20)])
    assert len(np.unique(words)) == 20_000  # a collision has probability 1e-11


def test_seeded_is_reproducible_and_says_so() -> None:
    assert np.array_equal(Generator(7).random_words(100), Generator(7).random_words(100))
    assert not np.array_equal(Generator(7).random_words(100), Generator(8).random_words(100))
    assert Generator(7).reproducible
    assert not Generator().reproducible
    assert "not for release" in repr(Generator(7))
    assert "secure" in repr(Generator())


def test_purposes_are_apart() -> None:
    noise, sampler = (
        Generator(7, purpose="noise").random_words(1000),
        Generator(7, purpose="sampler").random_words(1000),
    )
    assert not set(noise.tolist()) & set(sampler.tolist())
    assert np.array_equal(noise, Generator(7).random_words(1000))


@pytest.mark.parametrize(
    "save",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda g: g.__getstate__(),
        lambda g: copy.deepcopy({"noise": [g]}),
        lambda g: torch.save({"noise": g}, os.devnull),
    ],
    ids=["pickle", "copy", "deepcopy", "getstate", "inside a state", "torch.save"],
)
def test_no_state_can_be_saved(save: Callable[[Generator], object]) -> None:
    """So that a resumed run cannot draw the noise of the first one again."""
    for generator in (Generator(), Generator(1)):
        with refused(InvalidInput, "cannot be saved"):
            save(generator)


def test_forked_children_draw_their_own() -> None:
    """A parent and two children, all with the generator that existed before the fork."""
    generator = Generator()
    generator.random_words(3)
    drawn = []
    for _ in range(2):
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:  # nothing of the test framework runs here
            try:
                os.write(send, generator.random_words(8).tobytes())
            finally:
                os._exit(0)
        os.close(send)
        drawn.append(np.frombuffer(os.read(receive, 64), dtype=np.uint64))
        os.close(receive)
        assert os.waitpid(child, 0)[1] == 0
    drawn.append(generator.random_words(8))
    assert [len(words) for words in drawn] == [8, 8, 8]
    assert len(np.unique(np.concatenate(drawn))) == 24


def test_blocks_do_not_repeat() -> None:
    """The counter advances across the 1 MiB at which the stream is encrypted, and from call to call."""
    generator = Generator(3)
    calls = [generator.random_words(n) for n in (10, (1 << 17) - 10, 1 << 17, (1 << 17) + 1, 1, 3 << 17)]
    words = np.concatenate(calls)
    assert len(np.unique(words)) == len(words)  # a collision has probability 1e-8
    assert np.array_equal(words, Generator(3).random_words(len(words))), "how it is cut into calls does not matter"


def test_it_is_aes_256_in_counter_mode() -> None:
    """The stream itself, from the library's key derivation: no hand-made cipher."""
    key = hashlib.sha256(b"noisette/noise/3").digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * 1000))
    assert Generator(3).random_words(1000).tobytes() == stream


def test_uniforms_and_signs() -> None:
    """Level 1e-6 for each test, fixed seeds."""
    generator = Generator(4)
    u = generator.uniforms(200_000)
    signs, v = generator.signed_uniforms(200_000)
    for values in (u, v, generator.uniforms_128(200_000)):
        assert values.min() > 0
        assert values.max() <= 1
        assert stats.kstest(values, "uniform").pvalue > 1e-6
        assert len(np.unique(values)) == 200_000
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert stats.binomtest(int((signs > 0).sum()), 200_000, 0.5).pvalue > 1e-6
    assert abs(float(signs @ (v - v.mean())) / v.std()) / np.sqrt(200_000) < 4.9


def test_extreme_words_stay_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """All zeros and all ones, the ends of the range: never 0, where a law's magnitude would be infinite."""
    ends = np.array([0, 1, 2**64 - 2, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(Generator, "random_words", lambda self, n: np.resize(ends, n))
    generator = Generator(1)
    for values in (generator.uniforms(4), generator.uniforms_128(4), generator.signed_uniforms(4)[1]):
        assert np.all((values > 0) & (values <= 1))
    for noise in (StudentT(9, 1.0), StudentT(1.5, 1.0), Gaussian(1.0)):
        assert torch.isfinite(noise.sample((4,), generator)).all()


@pytest.mark.parametrize("seed", [1.5, "1", True, b"1", [1], np.float64(1.0), np.bool_(True)])
def test_bad_seeds(seed: object) -> None:
    with refused(InvalidInput, "seed"):
        Generator(seed)  # type: ignore[arg-type]


def test_a_seed_of_numpy_is_the_same_seed() -> None:
    assert np.array_equal(Generator(np.int64(7)).random_words(100), Generator(7).random_words(100))


def test_a_shared_secret() -> None:
    """The same stream for whoever has the secret, apart by purpose, and still neither saved nor marked."""
    secret = os.urandom(32)
    drawn = [Generator(secret=secret).random_words(100), Generator(secret=secret).random_words(100)]
    assert np.array_equal(*drawn)
    assert not np.array_equal(drawn[0], Generator(secret=os.urandom(32)).random_words(100))
    assert not set(drawn[0].tolist()) & set(Generator(secret=secret, purpose="sampling").random_words(100).tolist())
    assert not Generator(secret=secret).reproducible
    assert secret.hex() not in repr(Generator(secret=secret))
    with refused(InvalidInput, "cannot be saved"):
        pickle.dumps(Generator(secret=secret))


def test_a_shared_secret_does_not_outlive_a_fork() -> None:
    generator = Generator(secret=bytes(32))
    generator._process = -1  # what a child sees: another process drew the key
    assert not np.array_equal(generator.random_words(100), Generator(secret=bytes(32)).random_words(100))


@pytest.mark.parametrize("secret", [b"", bytes(31), "x" * 32, bytearray(32)])
def test_bad_secrets(secret: object) -> None:
    with refused(InvalidInput, "32 bytes"):
        Generator(secret=secret)  # type: ignore[arg-type]
    with refused(InvalidInput, "without a seed"):
        Generator(1, secret=bytes(32))


def test_deep_uniforms_are_right_for_their_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of all sizes, beside the whole numbers that they stand for."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, 4000, dtype=np.uint64) >> rng.integers(0, 64, 4000, dtype=np.uint64)
    words[2000:] = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    monkeypatch.setattr(Generator, "random_words", lambda self, n: words[:n])
    for found, bits, skip in ((Generator().uniforms_128(2000), 64, 0), (Generator().signed_uniforms(2000)[1], 63, 1)):
        for value, high, low in zip(found.tolist(), words[:2000].tolist(), words[2000:].tolist(), strict=True):
            ideal = Fraction(((high >> skip) << 64) + low, 2 ** (bits + 64))  # and what lies up to the next one
            step = Fraction(1, 2 ** (bits + 64))
            assert ideal * (1 - Fraction(1, 2**52)) <= Fraction(value) <= (ideal + step) * (1 + Fraction(1, 2**52))


@pytest.mark.parametrize("chance", [0.5, 256 / 60000, 1e-3, 2.0**-64, 1e-19, 3e-25, 1 - 2.0**-53])
def test_decisions_have_exactly_their_chance(chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word, as many of them as make up all of the chance's digits: true below, and true below only."""
    digits, left = [], Fraction(chance)
    while left:
        left *= 2**64
        digits.append(int(left))
        left -= digits[-1]
    for place, digit in enumerate(digits):
        for word, truth in ((digit - 1, True), (digit + 1, False)):
            if 0 <= word < 2**64:
                given = iter([*digits[:place], word])
                monkeypatch.setattr(
                    Generator, "random_words", lambda self, n, given=given: np.array([next(given)], np.uint64)
                )
                assert bool(Generator().bernoulli(1, chance)[0]) is truth
    given = iter(digits)
    monkeypatch.setattr(Generator, "random_words", lambda self, n: np.array([next(given)], np.uint64))
    assert not Generator().bernoulli(1, chance)[0], "not below"


def test_certain_decisions() -> None:
    assert Generator().bernoulli(50, 1.0).all()
    assert not Generator().bernoulli(50, 0.0).any()
