"""Features of a data set, computed once: 16 bits a number, on disk, mapped into memory."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from noisette import _io
from noisette.app.features._cache_files import HEADER, build_once, check
from noisette.app.features._parallel import Progress, run_parallel
from noisette.app.features.base import FeatureMap, Features
from noisette.app.features.concat import ConcatMaps
from noisette.errors import InvalidInput

__all__ = ["fit_cached", "transform_cached"]

VERSION = 1
"""Goes up whenever the same spec gives other numbers."""


def fit_cached(
    spec: Features, shape: tuple[int, ...], folder: str | Path, progress: Progress | None = None
) -> FeatureMap:
    """The map that `spec` gives for images of `shape`, from a file in `folder` where there is one.

    >>> import tempfile
    >>> from noisette.app.features import Scattering
    >>> with tempfile.TemporaryDirectory() as here:
    ...     fixed = fit_cached(Scattering(pictures="strokes", axes=20, count=30), (1, 16, 16), Path(here))
    >>> fixed.axes.shape
    torch.Size([1296, 20])
    """
    about = json.dumps([VERSION, repr(spec.replace(whitening=0.0)), list(shape)])
    path = Path(folder) / f"{hashlib.sha256(about.encode()).hexdigest()}.learnt"

    def contents() -> Iterator[bytes]:
        buffer = io.BytesIO()
        torch.save(spec.fit(shape, progress).state_dict(), buffer)
        yield buffer.getvalue()

    build_once(path, contents)
    with _io.naming(path):
        return spec.from_state(shape, _io.parse(_io.raw(path)[HEADER:], path))


def transform_cached(fixed: FeatureMap, images: Tensor, folder: str | Path, progress: Progress | None = None) -> Tensor:
    """Features (N, K) or (N, K, h, w) float32 of `images` (N, C, H, W); what takes long is mapped from a file.

    The file, in `folder`, holds what `fixed` has seen, before it is scaled, at 16 bits a number. Its name is a digest
    of the map's tensors and of the pictures, so that it fits no others. The features of private pictures are as private
    as these: only their owner can read the file. Parts of joined features have files of their own, which other joins
    share.

    >>> import tempfile
    >>> from noisette.app.features import Scattering
    >>> fixed = Scattering(pictures="strokes", axes=20, count=30).fit((1, 16, 16))
    >>> with tempfile.TemporaryDirectory() as here:
    ...     transform_cached(fixed, torch.rand(2, 1, 16, 16), Path(here)).shape
    torch.Size([2, 20])
    """
    folder = Path(folder)
    path = folder / f"{_digest(fixed, images)}.features"
    shape = (len(images), *fixed.shape)
    build_once(path, lambda: _stream(fixed, images, folder, progress))
    if not check(path) or path.stat().st_size != HEADER + 2 * math.prod(shape):
        raise InvalidInput(f"{path} is not what was written a moment ago.", hint="check the disk that it is on")
    found = torch.empty(shape)
    seen = np.memmap(path, np.float16, mode="r", offset=HEADER, shape=shape)
    for start in range(0, len(images), 4096):
        found[start : start + 4096] = fixed.scaled(torch.from_numpy(seen[start : start + 4096].astype(np.float32)))
    return found


def _stream(fixed: FeatureMap, images: Tensor, folder: Path, progress: Progress | None) -> Iterator[bytes]:
    joined = fixed.raw
    if isinstance(joined, ConcatMaps):
        parts = [transform_cached(part, images, folder, progress) for part in joined.members]

        def along(rows: Tensor) -> Tensor:
            return fixed.along(joined.beside([part[rows] for part in parts]))

        found = run_parallel(along, torch.arange(len(images)))
    else:
        found = run_parallel(fixed.seen, images, progress)
    for seen in found:
        yield seen.to(torch.float16).numpy().tobytes()


def _digest(fixed: FeatureMap, images: Tensor) -> str:
    state = fixed.state_dict()
    about = [VERSION, repr(fixed), {name: list(t.shape) for name, t in state.items()}, list(images.shape)]
    digest = hashlib.sha256(json.dumps(about).encode())
    for tensor in (*state.values(), *torch.split(images, 4096)):
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
