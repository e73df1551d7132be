"""Randomness: an AES-256-CTR stream keyed by the operating system, apart from every other generator in the process."""

from __future__ import annotations

import hashlib
import math
import numbers
import os
import weakref
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from noisette.errors import InvalidInput

__all__ = ["Generator", "as_seed"]

_BLOCK = 1 << 20  # bytes encrypted at a time
_SLACK = 15  # bytes more that a cipher asks for, though a stream needs none
_ZEROS = memoryview(bytes(_BLOCK))  # what is encrypted: the stream itself comes out


def as_seed(seed: Any) -> int | None:
    """`seed` as an integer of Python's own, or None; an error where it is neither."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, numbers.Integral)):
        raise InvalidInput(f"seed is {seed!r}, not an integer.", hint="leave it out for a run that may be released")
    return None if seed is None else int(seed)


class Generator:
    """A cryptographic stream of random numbers.

    Without a seed the key comes from the operating system and nothing can repeat it: ``torch.manual_seed`` does not
    touch it, it cannot be pickled or copied, and a forked child, such as a process that reads examples, has lost the
    key and draws one of its own. With a seed the stream is
    reproducible, and whatever is made with it is marked as not for release. With a `secret`, 32 bytes that the
    processes of one run share and nobody else knows, all of them draw the same. `purpose` separates streams that share
    a seed or a secret, so that the sampler and the noise never see the same numbers.

    >>> Generator(seed=1).uniforms(2).tolist() == Generator(seed=1).uniforms(2).tolist()
    True
    >>> Generator().uniforms(2).tolist() == Generator().uniforms(2).tolist()
    False
    """

    def __init__(self, seed: int | None = None, *, purpose: str = "noise", secret: bytes | None = None) -> None:
        seed = as_seed(seed)
        if secret is not None and (seed is not None or not isinstance(secret, bytes) or len(secret) != 32):
            raise InvalidInput(
                "a shared secret goes without a seed and has 32 bytes.", hint="take os.urandom(32) on one process"
            )
        self.reproducible = seed is not None
        if secret is not None:
            self._set_key(hashlib.sha256(f"noisette/shared/{purpose}/".encode() + secret).digest())
        elif seed is None:
            self._set_key(os.urandom(32))
        else:
            self._set_key(hashlib.sha256(f"noisette/{purpose}/{seed}".encode()).digest())

    def _set_key(self, key: bytes) -> None:
        # A fresh key for every stream, so a constant initial counter block never repeats under one key.
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._process = os.getpid()
        _ALIVE.add(self)

    def _drop_parent_key(self) -> None:
        """Forget the key of a parent process, unless it is a seed that everybody may know."""
        if not self.reproducible:
            self._set_key(os.urandom(32))

    def random_words(self, n: int) -> npt.NDArray[np.uint64]:
        """`n` independent uniform 64-bit words, shape (n,)."""
        if self._process != os.getpid():
            self._drop_parent_key()
        octets = np.empty(8 * n + _SLACK, dtype=np.uint8)
        room: memoryview[int] = octets.data
        for start in range(0, 8 * n, _BLOCK):
            size = min(_BLOCK, 8 * n - start)
            self._stream.update_into(_ZEROS[:size], room[start : start + size + _SLACK])
        return octets[: 8 * n].view(np.uint64)

    def uniforms(self, n: int) -> npt.NDArray[np.float64]:
        """`n` uniforms on (0, 1], 64 bits each, so that tails reach down to 2**-65, shape (n,)."""
        made = self.random_words(n).astype(np.float64)
        made += 0.5
        made *= 2.0**-64
        return made

    def uniforms_128(self, n: int) -> npt.NDArray[np.float64]:
        """`n` uniforms on (0, 1], from two words each: ideal ones up to 2**-52 of their size and 2**-128, shape (n,).

        Where tails are drawn, a float must be right for its own size, however small it is.
        """
        words = self.random_words(2 * n)
        return _joined(words[:n], words[n:], 64)

    def signed_uniforms(self, n: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """`n` independent fair signs and `deep` uniforms on (0, 1], up to 2**-127, shapes (n,) and (n,)."""
        words = self.random_words(2 * n)
        signs = 1.0 - 2.0 * (words[:n] & np.uint64(1)).astype(np.float64)
        return signs, _joined(words[:n] >> np.uint64(1), words[n:], 63)

    def bernoulli(self, n: int, chance: float) -> npt.NDArray[np.bool_]:
        """`n` independent decisions, each true with exactly this chance, a float in [0, 1], shape (n,).

        >>> Generator().bernoulli(3, 1.0).tolist()
        [True, True, True]
        """
        threshold = math.ldexp(chance, 64)  # exact, and so is what is left of it below
        whole = math.floor(threshold)
        if whole == 2**64:
            return np.ones(n, dtype=np.bool_)
        words = self.random_words(n)
        made: npt.NDArray[np.bool_] = words < np.uint64(whole)
        if threshold > whole:
            ties = np.flatnonzero(words == np.uint64(whole))  # once in 2**64
            made[ties] = self.bernoulli(len(ties), threshold - whole) if len(ties) else False
        return made

    def _refuse(self, *_: Any) -> NoReturn:
        raise InvalidInput(
            "the state of a noise generator cannot be saved or copied.",
            hint="make a new Generator(); a resumed run must draw fresh noise",
        )

    __reduce_ex__ = __copy__ = __deepcopy__ = __getstate__ = _refuse

    def __repr__(self) -> str:
        return f"Generator({'reproducible: not for release' if self.reproducible else 'secure'})"


def _joined(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.float64]:
    """Whole numbers of so many `bits`, and 64 more bits behind them, as uniforms on (0, 1]."""
    made, rest = high.astype(np.float64), low.astype(np.float64)
    made *= 2.0**-bits
    rest += 0.5
    rest *= 2.0 ** -(bits + 64)
    made += rest
    return made


_ALIVE: weakref.WeakSet[Generator] = weakref.WeakSet()


def _forked() -> None:
    for generator in list(_ALIVE):
        generator._drop_parent_key()


if hasattr(os, "register_at_fork"):  # a system that cannot fork has nothing to forget
    os.register_at_fork(after_in_child=_forked)
