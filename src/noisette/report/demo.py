"""``python -m noisette.report.demo``: a mechanism, its encoding of a real gradient and its noise, as a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

from noisette.encode import Ranked
from noisette.generator import Generator
from noisette.mechanism import Mechanism
from noisette.noise import StudentT
from noisette.profiles import HalfNormal
from noisette.release import release
from noisette.report.mechanism import draw_mechanism
from noisette.report.style import save

__all__ = ["main", "one_gradient"]


def one_gradient() -> torch.Tensor:
    """The gradient (d,) of an untrained convolutional network on the first of scikit-learn's handwritten digits.

    >>> one_gradient().shape
    torch.Size([9258])
    """
    digits = load_digits()
    image = torch.tensor(digits.data[:1] / 16.0, dtype=torch.float32).reshape(1, 1, 8, 8)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the weights, which are public; noise never comes from this generator
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        )
    loss = nn.functional.cross_entropy(model(image), torch.tensor(digits.target[:1]))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


def main(folder: Path = Path("runs/demo")) -> Path:
    """Draw the picture into `folder`, say on standard output what it shows, and return its path."""
    gradient = one_gradient()
    mechanism = Mechanism(
        encoder=Ranked(dim=len(gradient), profiles=HalfNormal()),
        noise=StudentT(df=9, scale=1.0),
        rate=64 / 1797,
        steps=500,
    )
    generator = Generator()
    released = release(mechanism, mechanism.encoder.encode_sum(gradient[None]), generator=generator)
    picture = save(draw_mechanism(mechanism, gradient, generator=generator), folder / "mechanism.png")
    sys.stdout.write(
        f"mechanism  {mechanism!r}\n"
        f"hash       {mechanism.hash}\n"
        f"released   {len(released.values)} numbers: one encoded gradient and noise of standard deviation"
        f" {mechanism.noise.std:.3g} on each\n"
        f"picture    {picture}\n"
    )
    return picture


if __name__ == "__main__":
    main()
