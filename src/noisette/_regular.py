"""Opening a file for reading, where there is one: a pipe would be waited for, and a device may never end."""

from __future__ import annotations

import errno
import io
import os
import stat
from os import PathLike

__all__ = ["NotRegular", "descriptor", "opened"]


class NotRegular(OSError):
    """What is at a path, once links are followed, is a folder, a pipe, a socket or a device."""


def descriptor(path: str | PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A descriptor of the regular file at `path`; links are followed, anything else raises `NotRegular`.

    >>> descriptor("/dev/null")
    Traceback (most recent call last):
    noisette._regular.NotRegular: [Errno 22] not a regular file: '/dev/null'
    """
    _check(path, os.stat(path))  # before it is opened: that alone makes some devices act
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe that took its place opens at once
    try:
        _check(path, os.fstat(handle))
    except NotRegular:
        os.close(handle)
        raise
    return handle


def opened(path: str | PathLike[str]) -> io.BufferedReader:
    """The regular file at `path`, to read its bytes."""
    return open(descriptor(path), "rb")


def _check(path: str | PathLike[str], found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(errno.EINVAL, "not a regular file", os.fspath(path))
