import numpy as np
import numpy.typing as npt
import torch

class Plan:
    def __init__(self, kind: str, radius: float, step: float) -> None: ...
    def add_block(
        self,
        dim: int,
        levels: npt.NDArray[np.float32],
        starts: npt.NDArray[np.int64],
        knots: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> None: ...

class Layers:
    def linear(self, x: torch.Tensor, g: torch.Tensor, at: int) -> None: ...
    def conv(
        self, x: torch.Tensor, g: torch.Tensor, kernel: list[int], stride: list[int], margins: list[int], at: int
    ) -> None: ...
    def rows(self, x: torch.Tensor, at: int) -> None: ...

class LookedUp:
    def __init__(self, index: torch.Tensor, g: torch.Tensor, rows: int, squares: torch.Tensor, isa: str) -> None: ...
    def add(self, weights: torch.Tensor, step: float, total: torch.Tensor) -> None: ...

def encode_sum(
    plan: Plan,
    layers: Layers,
    total: torch.Tensor,
    squares: torch.Tensor,
    factors: torch.Tensor,
    threads: int,
    isa: str,
) -> None: ...
def add_bounded(
    v: torch.Tensor, bounds: torch.Tensor, factors: torch.Tensor, step: float, total: torch.Tensor, isa: str
) -> None: ...
def gaussian_pairs(words: npt.NDArray[np.uint64], draws: npt.NDArray[np.float64], isa: str) -> None: ...
def student_draws(words: npt.NDArray[np.uint64], df: float, draws: npt.NDArray[np.float64], isa: str) -> None: ...
def add_noise(total: torch.Tensor, noise: torch.Tensor, coarse: float, most: float, end: float, isa: str) -> None: ...
def filter(  # noqa: A001
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    out: torch.Tensor,
    stride: list[int],
    margins: list[int],
    threads: int,
    isa: str,
) -> None: ...
def pool(
    x: torch.Tensor,
    out: torch.Tensor,
    taps: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    pad: list[int],
    threads: int,
    isa: str,
) -> None: ...
def unpool(
    g: torch.Tensor,
    taps: torch.Tensor,
    out: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    pad: list[int],
    threads: int,
    isa: str,
) -> None: ...
def tanh(x: torch.Tensor, out: torch.Tensor, threads: int, isa: str) -> None: ...
def variants() -> list[str]: ...
