"""Tiny published data sets in the real layouts, with digests of their own."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import lzma
import struct
from pathlib import Path

import numpy as np

from noisette.app.datasets._published_files import DataFile
from noisette.app.datasets.sources.cifar10 import Cifar10
from noisette.app.datasets.sources.mnist import Mnist
from noisette.app.datasets.sources.published import Published

_NUMBERS = itertools.count()
COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def idx_images(images: np.ndarray) -> bytes:
    return struct.pack(">4i", 2051, *images.shape) + images.astype(np.uint8).tobytes()


def idx_labels(labels: np.ndarray) -> bytes:
    return struct.pack(">2i", 2049, len(labels)) + labels.astype(np.uint8).tobytes()


def describe(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.sha256(content).hexdigest())


def toy(base: type[Published], files: tuple[DataFile, ...]) -> Published:
    """A data set of the form of `base` under a name of its own, since whatever exists is registered."""
    number = next(_NUMBERS)
    about = {"name": f"toy-{number}", "folder": "toy-folder", "files": files, "address": "http://127.0.0.1:9/"}
    return type(f"Toy{number}", (base,), about)()


def idx_set(seed: int = 0) -> tuple[Published, dict[str, bytes], np.ndarray, np.ndarray]:
    """Six training and three test images of 5x4: the set, its files, and the training images and labels."""
    generator = np.random.default_rng(seed)
    images, labels = generator.integers(0, 256, (9, 5, 4)), np.arange(9)
    contents = {
        "train-images": idx_images(images[:6]),
        "train-labels": idx_labels(labels[:6]),
        "t10k-images": idx_images(images[6:]),
        "t10k-labels": idx_labels(labels[6:]),
    }
    files = tuple(describe(name, content) for name, content in contents.items())
    return toy(Mnist, files), contents, images, labels


def cifar_set(seed: int = 0) -> tuple[Published, dict[str, bytes], np.ndarray]:
    """Two training files and a test file of four records each, and all twelve records (12, 3073)."""
    records = np.random.default_rng(seed).integers(0, 256, (12, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    contents = {f"part_{i}.bin": records[4 * i : 4 * i + 4].tobytes() for i in range(3)}
    files = tuple(describe(name, content) for name, content in contents.items())
    return toy(Cifar10, files), contents, records


def store(published: Published, contents: dict[str, bytes], root: Path, suffix: str) -> Path:
    folder = root / published.folder
    folder.mkdir()
    for name, content in contents.items():
        (folder / (name + suffix)).write_bytes(COMPRESS[suffix](content))
    return folder
