"""Does any example have a say in another one's gradient? Then no clipping bounds it, and the model is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from noisette.errors import InvalidInput
from noisette.gradients.layout import Layout
from noisette.gradients.ways import Loss, Way, buffers_of, own_gradient

__all__ = ["Witness", "different_examples", "refuse_batch_statistics", "without_dropout"]

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


def different_examples(inputs: Tensor) -> list[int]:
    """Indices of a few finite examples of `inputs` (B, ...), no two alike.

    >>> different_examples(torch.tensor([[1.0], [1.0], [torch.nan], [2.0]]))
    [0, 3]
    """
    chosen: list[int] = []
    for i in range(len(inputs)):
        alike = any(torch.equal(inputs[i], inputs[j]) for j in chosen)
        if not alike and bool(torch.isfinite(inputs[i]).all()):
            chosen.append(i)
        if len(chosen) == _EXAMPLES:
            break
    return chosen


class Witness:
    """What some examples (n, ...) give in a batch, alone, and among copies of themselves; raises where that differs.

    Copies have the shapes of the batch, hence its rounding errors and, from the same seed, its random draws: there even
    a faint influence shows. Alone, what depends on the size of the batch shows too, unless the model is random.
    """

    def __init__(self, model: nn.Module, loss: Loss, layout: Layout, x: Tensor, y: Tensor) -> None:
        self._model, self._loss, self._layout, self._x, self._y = model, loss, layout, x, y
        self._gradients = layout.parameters[0].new_empty(len(x), layout.dim)
        batch = self._outputs(x)
        self._size = _largest(batch)  # of all examples: what cancels out in one leaves rounding errors of its terms
        random = not _near(batch, self._outputs(x, seed=1), size=0.0, power=1.0)
        for i in range(len(x)):
            together = self._row(batch, i)
            among_copies = self._row(self._outputs(x[[i] * len(x)]), i)
            isolated = self._agree(together, among_copies, power=0.75)
            if isolated and not random:
                isolated = self._agree(together, self._row(self._outputs(x[i : i + 1]), i, at=0), power=0.5)
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
        except RuntimeError:  # the model has run before, so it is the way that does not fit
            return False
        return _near(rows, self._gradients, max(_largest(self._gradients), _SMALL), power=0.5)

    def _outputs(self, x: Tensor, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        # the model may work in place on what it is given
        outputs = functional_call(self._model, buffers_of(self._model), (x.clone(),))
        if not isinstance(outputs, Tensor) or outputs.ndim == 0 or len(outputs) != len(x):
            raise InvalidInput(
                f"the output of {type(self._model).__name__} has no row for each example.",
                hint="return one tensor whose first dimension is that of the batch",
            )
        return outputs

    def _row(self, outputs: Tensor, i: int, at: int | None = None) -> tuple[Tensor, Tensor]:
        """Output and gradient of example `i`, which stands in row `at` of `outputs`, by default its own."""
        at = i if at is None else at
        gradient = torch.empty_like(self._gradients[i])
        own_gradient(self._loss, outputs[at : at + 1], self._y[i : i + 1], self._layout, gradient)
        return outputs[at].detach(), gradient

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
