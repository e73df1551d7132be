"""Files that are either whole or absent: written beside, synced, then moved into place."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from noisette.errors import InvalidInput

__all__ = ["load", "parse", "save", "write"]


def write(path: Path, data: bytes) -> None:
    """Put `data` at `path`; a crash or a full disk leaves the old file as it was."""
    beside = path.with_name(path.name + ".new")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidInput(
            f"{path} cannot be written ({(error.strerror or 'unknown error').lower()}); the file before it is intact.",
            hint="free some space, then resume the run",
        ) from None


def save(path: Path, state: dict[str, Any]) -> None:
    """Save tensors, numbers and texts at `path`, atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write(path, buffer.getvalue())


def load(path: Path, device: str | torch.device = "cpu") -> Any:
    """What `save` wrote. Loads with ``weights_only``: a file can hold data, never code."""
    try:
        return parse(path.read_bytes(), path, device)
    except FileNotFoundError:
        raise InvalidInput(f"there is no {path}.", hint="is this the folder of a run?") from None
    except OSError:
        raise _damaged(path) from None


def parse(data: bytes, path: Path, device: str | torch.device = "cpu") -> Any:
    """What `save` wrote to `path`, from its bytes."""
    reader: Callable[..., Any] = torch.load
    try:
        return reader(io.BytesIO(data), map_location=device, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError, ValueError, KeyError):
        raise _damaged(path) from None


def _damaged(path: Path) -> InvalidInput:
    return InvalidInput(
        f"{path} is damaged or holds more than data.", hint="restore it from a backup, or start a new run"
    )
