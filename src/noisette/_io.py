"""Our files, read and written in one place: whole or absent, data and never code, and one kind of error when damaged.

What a file holds is not trusted: it may be cut, changed, of another program or made to do harm. Whatever is wrong with
it ends in an `InvalidInput` that names the file.
"""

from __future__ import annotations

import io
import json
import os
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from noisette._locks import hold
from noisette._regular import NotRegular, opened
from noisette.errors import InvalidInput, NoisetteError

__all__ = [
    "array",
    "fill",
    "load",
    "naming",
    "parse",
    "raw",
    "record",
    "records",
    "replacing",
    "save",
    "table",
    "text",
    "write",
]


@contextmanager
def replacing(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write, which stands at `path`, on disk, when the block has ended well; otherwise nothing has changed.

    `mode` has the permissions that it may get, less those that the user's umask takes. While it is written it has a
    name of its own, which ends in ``.new``, and a lock: what has the name and no lock was left by a process that died.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     with replacing(Path(here, "f")) as file:
    ...         _ = file.write(b"abc")
    ...     Path(here, "f").read_bytes(), len(os.listdir(here))
    (b'abc', 1)
    """
    beside = _beside(Path(path))
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)  # never a file of somebody else
    try:
        with os.fdopen(handle, "wb") as file:
            hold(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
            beside.replace(path)
    except BaseException:  # Ctrl-C as well
        with suppress(OSError):
            beside.unlink()
        raise


def _beside(path: Path) -> Path:
    """A name that no other writer has, on this machine or on another that shares the folder."""
    return path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")


def write(path: str | Path, data: bytes, *, hint: str = "free some space, then resume the run") -> None:
    """Put `data` at `path`; a crash or a full disk leaves the old file as it was."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written ({reason(error)}); what was there is intact.", hint=hint
        ) from None


def reason(error: OSError) -> str:
    """What the operating system says, in a few words."""
    return (error.strerror or "unknown error").lower()


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Inside, an error of the library says that it is about the file at `path`.

    >>> with naming(Path("recipe.toml")):
    ...     raise InvalidInput("lr is 0, not above 0.", hint="give a positive lr")
    Traceback (most recent call last):
    noisette.errors.InvalidInput: in recipe.toml, lr is 0, not above 0.
    <BLANKLINE>
    hint: give a positive lr
    """
    try:
        yield
    except NoisetteError as error:
        raise InvalidInput(f"in {path}, {error.sentence}", hint=error.hint) from None


# -- text --------------------------------------------------------------------------------------------------------------


def raw(path: str | Path) -> bytes:
    """The bytes of a file."""
    path = Path(path)
    try:
        with opened(path) as file:
            return file.read()
    except NotRegular:
        raise InvalidInput(f"{path} is not a regular file.", hint="give a file on a disk, or a link to one") from None
    except FileNotFoundError:
        there = f"{path.parent} has no {path.name}." if path.parent.is_dir() else f"there is no folder {path.parent}."
        raise InvalidInput(there, hint=_RUN) from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({reason(error)}).", hint=_RUN) from None


def text(path: str | Path) -> str:
    """The text of a file."""
    try:
        return raw(path).decode()
    except UnicodeDecodeError:
        _refuse(path, "text in UTF-8")


def table(path: str | Path, content: str | None = None) -> dict[str, Any]:
    """The values of a TOML file, or of `content`, which was read from it."""
    try:
        return tomllib.loads(text(path) if content is None else content)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is not TOML: {_line(error)}.", hint="write one name = value a line") from None
    except InvalidInput:
        raise
    except (ValueError, RecursionError):  # a number of 5,000 digits, a thousand brackets
        _refuse(path, "TOML that anybody would write")


def record(path: str | Path, content: str | None = None) -> dict[str, Any]:
    """The object in a JSON file, or in `content`, which was read from it."""
    return _object(path, text(path) if content is None else content)


def records(path: str | Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines."""
    return [_object(path, line) for line in text(path).splitlines()]


def _object(path: str | Path, content: str) -> dict[str, Any]:
    try:
        value = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        _refuse(path, "JSON")
    if not isinstance(value, dict):
        _refuse(path, "a JSON object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# -- numbers -----------------------------------------------------------------------------------------------------------


def save(path: str | Path, state: dict[str, Any]) -> None:
    """Save tensors, numbers and texts at `path`, atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write(path, buffer.getvalue())


def load(path: str | Path, device: str | torch.device = "cpu") -> Any:
    """What `save` wrote. Loads with ``weights_only``: a file can hold data, never code."""
    return parse(raw(path), path, device)


def parse(data: bytes, path: str | Path, device: str | torch.device = "cpu") -> Any:
    """What `save` wrote to `path`, from its bytes: a zip archive whose every part has its checksum, uncompressed."""
    reader: Callable[..., Any] = torch.load
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_parts(archive)
        with warnings.catch_warnings(action="ignore"):
            return reader(io.BytesIO(data), map_location=device, weights_only=True)
    except Exception:  # noqa: BLE001 - torch runs what the file says, and raises whatever comes of it
        raise InvalidInput(
            f"{path} is damaged or holds more than data.", hint="restore it from a backup, or start a new run"
        ) from None


def _check_parts(archive: zipfile.ZipFile) -> None:
    """Raise where a part is compressed, and so could be of any size, or does not fit its checksum.

    torch itself looks at no checksum.
    """
    if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()) or archive.testzip() is not None:
        raise zipfile.BadZipFile


def fill(module: nn.Module, state: Any, path: str | Path) -> None:
    """Put `state`, which was read from `path`, into `module`: all of its tensors, of the same shapes and types.

    >>> fill(nn.Linear(2, 1), nn.Linear(2, 1).state_dict(), Path("model.pt"))
    >>> fill(nn.Linear(2, 1), nn.Linear(3, 1).state_dict(), Path("model.pt"))
    Traceback (most recent call last):
    noisette.errors.InvalidInput: model.pt holds another model than that of this run.
    <BLANKLINE>
    hint: restore it from a backup, or start a new run
    """
    if not alike(module.state_dict(), state):
        raise InvalidInput(
            f"{path} holds another model than that of this run.", hint="restore it from a backup, or start a new run"
        )
    module.load_state_dict(state)


def alike(known: Any, found: Any) -> bool:
    """Whether `found` is built like `known`: the same names, and tensors of the same shapes and types at the same ones.

    >>> alike({"a": torch.zeros(2), "b": 1}, {"a": torch.ones(2), "b": 5})
    True
    >>> alike({"a": torch.zeros(2)}, {"a": torch.zeros(3)})
    False
    """
    if isinstance(known, dict):
        same = isinstance(found, dict) and known.keys() == found.keys()
        return same and all(alike(value, found[name]) for name, value in known.items())
    if isinstance(known, Tensor):
        return isinstance(found, Tensor) and (known.shape, known.dtype) == (found.shape, found.dtype)
    return type(known) is type(found)


def array(path: str | Path) -> Tensor:
    """The numbers in a .npy file, float32."""
    path = Path(path)
    if not os.path.exists(path):
        raise InvalidInput(f"there is no file {path}.", hint="give the path of an array that numpy.save has written")
    try:
        with opened(path):
            found = np.lib.format.open_memmap(path, mode="r")  # mapped, so that a header cannot ask for memory
        if found.dtype.kind not in "fiub":
            raise TypeError
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
            return torch.from_numpy(np.array(found, dtype=np.float32))
    except Exception:  # noqa: BLE001 - numpy parses the header as Python, with as many errors
        raise InvalidInput(f"{path} is not an array of numbers.", hint="write it with numpy.save") from None


_RUN = "give the folder of a run, like runs/digits-0001"


def _line(error: Exception) -> str:
    return str(error).replace("\n", " ").rstrip(".")


def _refuse(path: str | Path, kind: str) -> NoReturn:
    raise InvalidInput(f"{path} is damaged: it is not {kind}.", hint="restore it from a backup") from None
