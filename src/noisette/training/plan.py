"""A plan: the mechanism that a model, a data set and a budget ask for, so that nobody counts parameters."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from noisette._gradients import trained_parameters
from noisette._spec import positive, whole
from noisette.accounting._truncation import min_max_batch
from noisette.accounting.account import check_delta
from noisette.accounting.calibrate import calibrate
from noisette.encoders import L2, Encoder
from noisette.errors import InvalidInput
from noisette.mechanism import Mechanism
from noisette.noise import Gaussian, Noise
from noisette.sampling import EXAMPLE, UNIT, Poisson
from noisette.training._reject_loader_options import reject_loader_options
from noisette.training._units import Units
from noisette.training.given import count

__all__ = ["plan", "with_dim"]


_SHARE_OF_THE_CUT = 0.01  # of delta


@reject_loader_options
def plan(
    model: nn.Module,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    batch: int,
    steps: int | None = None,
    epochs: float | None = None,
    encoder: Encoder | None = None,
    noise: Noise | None = None,
    units: Any = None,
    cap: bool = False,
) -> Mechanism:
    """The mechanism that trains `model` on `data` and spends at most `epsilon` at `delta`.

    `data` is what `make_private` takes: ``(inputs, targets)``, a Dataset, any pytree of tensors. `batch` is the
    expected size of a batch; give `steps`, or `epochs` over the data. The encoder's dimension is the number of trained
    parameters and the noise's scale follows from the budget. By default gradients are clipped, and noise is Gaussian.

    With `units`, one id for each example, people are drawn and protected with all of their examples: `batch` counts
    people. With `cap`, no batch is ever larger than the mechanism's ``sampling.max_batch``, chosen so that cutting
    those that are costs at most a hundredth of delta: memory is then fixed beforehand.

    >>> import torch
    >>> found = plan(nn.Linear(4, 2), torch.randn(1000, 4), epsilon=3.0, delta=1e-5, batch=100, epochs=2)
    >>> found.encoder, found.rate, found.steps
    (L2(dim=10, radius=1.0, micro_batch=1), 0.1, 20)
    """
    dim = trained_parameters(model)
    examples, size, of = count(data), whole("batch", batch, least=1), EXAMPLE
    if units is not None:
        examples, of = len(Units.of(units, examples, 1)), UNIT
    if size > examples:
        raise InvalidInput(
            f"a batch of {size} is more than the {examples} {of}s that there are.",
            hint=f"give batch={examples}, which takes all of them in every step, or less",
        )
    if (steps is None) == (epochs is None):
        raise InvalidInput("a plan needs either steps or epochs.", hint="give one of the two")
    taken = whole("steps", steps, least=1) if steps is not None else _steps(epochs, examples, size)
    sampling = Poisson(size / examples, unit=of)
    if cap:
        budget = positive("epsilon", epsilon), _SHARE_OF_THE_CUT * check_delta(delta, examples, of)
        most = min_max_batch(sampling.rate, examples, taken, *budget)
        sampling = sampling.replace(max_batch=most, population=examples)
    open_plan = Mechanism(encoder or L2(), noise or Gaussian(), steps=taken, sampling=sampling)
    return calibrate(with_dim(open_plan, dim), epsilon, delta, examples=examples)


def with_dim(mechanism: Mechanism, dim: int) -> Mechanism:
    """`mechanism` for `dim` trained parameters; an error where its encoder is made for another number."""
    encoder = mechanism.encoder
    if encoder.dim is None:
        return mechanism.replace(encoder=encoder.replace(dim=dim))
    if encoder.dim != dim:
        raise InvalidInput(
            f"the encoder has dimension {encoder.dim}, the model has {dim} trained parameters.",
            hint=f"give the encoder dim={dim}, or leave it out",
        )
    return mechanism


def _steps(epochs: float | None, examples: int, batch: int) -> int:
    return math.ceil(positive("epochs", epochs) * examples / batch)
