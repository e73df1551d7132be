"""What the bits of a computation depend on, beside its numbers: threads, processor, kernels, and the mode of BLAS.

A matrix product of MKL rounds by where its operands lie in memory, unless its strict reproducible mode is on. That mode
can be set until the first product of a process; importing this module sets it.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch

from noisette import _native

__all__ = ["environment", "fingerprint", "strict"]

_AUTO_STRICT = 0x10002  # MKL_CBWR_AUTO with MKL_CBWR_STRICT, of mkl_types.h
_ALL = -1  # both, of mkl_cbwr_get


def strict() -> bool:
    """Whether a matrix product rounds alike wherever its operands lie, and on however many threads."""
    mkl = _mkl()
    return mkl is not None and mkl.mkl_serv_cbwr_get(_ALL) == _AUTO_STRICT


def environment() -> tuple[object, ...]:
    """What may change while a process runs, and with it how the same numbers are rounded."""
    return (
        torch.get_num_threads(),
        _native.variant(),
        torch.get_float32_matmul_precision(),
        torch._C._get_mkldnn_enabled(),
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        strict(),
    )


def fingerprint() -> str:
    """All that bits depend on in this process: processes whose fingerprints are equal compute alike."""
    return repr((environment(), _machine()))


@cache
def _machine() -> tuple[str, ...]:
    """What libraries choose their code by: the processor as the system describes it, and torch's version."""
    lines = [platform.machine(), platform.processor()]
    described = Path("/proc/cpuinfo")
    if described.is_file():
        first = described.read_text(errors="replace").partition("\n\n")[0].splitlines()
        lines += [line for line in first if line.startswith(("model", "vendor_id", "cpu family", "stepping", "flags"))]
    return *lines, torch.__version__, torch.backends.cpu.get_cpu_capability()


@cache
def _mkl() -> Any:
    """The library that torch takes products from, if it is MKL and can be asked for its mode."""
    if not torch._C.has_mkl:
        return None
    for name in ("libtorch_cpu.so", "torch_cpu.dll", "libtorch_cpu.dylib"):
        try:
            found = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))
            found.mkl_serv_cbwr_get, found.mkl_serv_cbwr_set  # noqa: B018 - raises where there is no such function
        except (OSError, AttributeError):
            continue
        return found
    return None


if (_library := _mkl()) is not None:
    _library.mkl_serv_cbwr_set(_AUTO_STRICT)  # rejected after a first product, which `strict` then tells
