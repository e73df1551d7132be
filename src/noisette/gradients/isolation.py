"""Is the model what it looks like, one example at a time? Made-up examples tell, before any real one is used.

Examples are isolated by construction: every way of computing gradients shows the model one example. A model that does
something else with a batch would then be trained as something that nobody wrote, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from noisette.errors import InvalidInput, NoisetteError
from noisette.gradients.layout import Layout
from noisette.gradients.ways import Loss, Way, copies_of, fill

__all__ = ["Witness", "made_up", "refuse_batch_statistics", "without_dropout"]

_EXAMPLES = 4
_SMALL = 0.1  # gradients below it are compared as if they were that large: a fitted model leaves rounding errors only
_HINT = "replace what computes across the batch (BatchNorm by GroupNorm), so that every example stays alone"


def refuse_batch_statistics(model: nn.Module) -> None:
    """Raise InvalidInput where a layer of the BatchNorm family would use or gather statistics of the batch.

    >>> refuse_batch_statistics(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)))
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            mixes = module.training or module.running_mean is None
        else:
            gathers = isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats
            mixes = gathers and module.training
        if mixes:
            raise InvalidInput(
                f"{type(module).__name__} at {name or 'the top'!r} mixes the examples of a batch.",
                hint="replace it by GroupNorm",
            )


def made_up(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Four examples of the same shapes and types: what is decided about a model must not hang on private ones.

    >>> x, y = made_up(torch.empty(0, 3), torch.empty(0, dtype=torch.long))
    >>> x.shape, y
    (torch.Size([4, 3]), tensor([0, 0, 0, 0]))
    """
    shape, device = (_EXAMPLES, *inputs.shape[1:]), inputs.device
    public = torch.Generator().manual_seed(0)
    if inputs.is_floating_point():
        made = torch.rand(shape, generator=public).to(inputs.dtype)
    else:
        made = torch.randint(2, shape, generator=public).to(inputs.dtype)
    return made.to(device), torch.zeros((_EXAMPLES, *targets.shape[1:]), dtype=targets.dtype, device=device)


@dataclass(frozen=True)
class _Run:
    """Outputs (n, ...) of the model, and the parameters that it had."""

    outputs: Tensor
    parameters: list[Tensor]


class Witness:
    """What some examples (n, ...) give in a batch, alone, and among copies of themselves; raises where that differs.

    Copies have the shapes of the batch, hence its rounding errors and, from the same seed, its random draws: there even
    a faint influence shows. Alone, what depends on the size of the batch shows too, unless the model is random.
    """

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout, x: Tensor, y: Tensor) -> None:
        self._model, self._loss, self._layout, self._x, self._y = model, loss, layout, x, y
        self._gradients = layout.parameters[0].new_empty(len(x), layout.dim)
        batch = self._run(x)
        self._size = _largest(batch.outputs)  # of all examples: what cancels out leaves rounding errors of its terms
        random = not _near(batch.outputs, self._run(x, seed=1).outputs, size=0.0, power=1.0)
        for i in range(len(x)):
            together = self._row(batch, i)
            among_copies = self._row(self._run(x[[i] * len(x)]), i)
            isolated = self._agree(together, among_copies, power=0.75)
            if isolated and not random:
                isolated = self._agree(together, self._row(self._run(x[i : i + 1]), i, at=0), power=0.5)
            if not isolated:
                raise InvalidInput(
                    f"an example's gradient in a batch differs from its gradient alone in {type(model).__name__}.",
                    hint=_HINT,
                )
            self._gradients[i] = together[1]

    def confirms(self, way: Way) -> bool:
        """Does this way give the examples the same gradients?"""
        rows = torch.empty_like(self._gradients)
        try:
            torch.manual_seed(0)
            way.rows(self._x.clone(), self._y, rows)
        except NoisetteError:
            raise
        except Exception:  # noqa: BLE001 - the model has run before, so it is the way that does not fit
            return False
        return _near(rows, self._gradients, max(_largest(self._gradients), _SMALL), power=0.5)

    def _run(self, x: Tensor, seed: int = 0) -> _Run:
        torch.manual_seed(seed)
        # the model may write to what it is given
        state = copies_of(self._model)
        outputs = functional_call(self._model, state, (x.clone(),))
        if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(x):
            raise InvalidInput(
                f"the output of {type(self._model).__name__} has no row for each example.",
                hint="return one tensor whose first dimension is that of the batch",
            )
        return _Run(outputs, [state[name] for name in self._layout.names])

    def _row(self, run: _Run, i: int, at: int | None = None) -> tuple[Tensor, Tensor]:
        """Output and gradient of example `i`, which stands in row `at` of the outputs, by default its own."""
        at = i if at is None else at
        gradient = torch.empty_like(self._gradients[i])
        loss = self._loss(run.outputs[at : at + 1], self._y[i : i + 1]).sum()
        found = torch.autograd.grad(loss, run.parameters, retain_graph=True, allow_unused=True)
        fill(self._layout.parts(gradient), found)
        return run.outputs[at].detach(), gradient

    def _agree(self, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], power: float) -> bool:
        (output, gradient), (output2, gradient2) = one, other
        return (
            output.shape == output2.shape
            and _near(output, output2, self._size, power)
            and _near(gradient, gradient2, max(_largest(gradient), _SMALL), power)
        )


def _largest(values: Tensor) -> float:
    """The largest finite magnitude; 0 where nothing is finite."""
    return float(values.detach().abs().nan_to_num(nan=0.0, posinf=0.0).max())


def _near(one: Tensor, other: Tensor, size: float, power: float) -> bool:
    tolerance = float(torch.finfo(one.dtype).eps) ** power * size
    return torch.allclose(one, other, rtol=0.0, atol=tolerance, equal_nan=True)


@contextmanager
def without_dropout(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Switch dropout off while the block runs, and put torch's generators back to where they were."""
    layers = [m for m in model.modules() if isinstance(m, nn.RNNBase | nn.MultiheadAttention)]
    rates = [layer.dropout for layer in layers]
    accelerated = device.type != "cpu"
    kind = device.type if accelerated else "cuda"
    try:
        for layer in layers:
            layer.dropout = 0.0
        with torch.random.fork_rng([device] if accelerated else [], device_type=kind), _NoDropout():
            yield
    finally:
        for layer, rate in zip(layers, rates, strict=True):
            layer.dropout = rate


class _NoDropout(TorchFunctionMode):
    """Dropout, as a module or as a function, does nothing."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else given["input"]
        if "dropout_p" in given:
            given["dropout_p"] = 0.0
        return func(*args, **given)


_DROPOUTS = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.feature_dropout, torch.alpha_dropout, torch.feature_alpha_dropout),
}
