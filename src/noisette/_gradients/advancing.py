"""Buffers that a forward pass changes: each example meets copies of them, so that in private they would never move."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.spectral_norm import SpectralNorm

from noisette._gradients.loss_adapter import LossAdapter, tensor_paths
from noisette._gradients.state_snapshot import same
from noisette._pytree import Batch
from noisette.errors import InvalidInput

__all__ = ["refuse_advancing"]


def refuse_advancing(aim: LossAdapter, one: Batch) -> None:
    """Raise InvalidInput where the model changes a buffer when it sees one made-up example, as spectral_norm does.

    The model itself stays as it is. A buffer that is filled once with what it holds already does not count.

    >>> import torch
    >>> refuse_advancing(LossAdapter(nn.Linear(2, 1), lambda model, batch: model(batch).sum(1)), torch.ones(1, 2))
    """
    for name, module in aim.model.named_modules():
        if any(isinstance(hook, SpectralNorm) for hook in module._forward_pre_hooks.values()):
            raise InvalidInput(
                f"{type(module).__name__} at {name or 'the top'!r} has the spectral norm of torch.nn.utils, whose "
                "power iteration never goes on in private.",
                hint="take torch.nn.utils.parametrizations.spectral_norm, whose state can be advanced between steps",
            )
    held = tensor_paths(aim.model)
    public = torch.Generator().manual_seed(0)
    copies = {tensor: _moved(tensor, public) for tensor in held.values()}
    state = {f"model.{place}": copies[tensor] for place, tensor in held.items()}
    with torch.enable_grad(), aim.within:
        functional_call(aim, state, (one, True), tie_weights=False)  # which leaves in `state` what came of it
    buffers = {id(buffer) for buffer in aim.model.buffers()}
    for place, before in held.items():
        if id(before) in buffers and not same(before, state[f"model.{place}"].detach()):
            _refuse(aim.model, place)


def _moved(tensor: Tensor, public: torch.Generator) -> Tensor:
    """A copy, if trained not of the same numbers: what follows the weights may rest where they have rested."""
    copy = tensor.detach().clone()
    if tensor.requires_grad:
        copy *= (torch.rand(copy.shape, generator=public) + 0.5).to(copy.device, copy.dtype)
    return copy.requires_grad_(tensor.requires_grad)


def _refuse(model: nn.Module, place: str) -> None:
    owner, _, buffer = place.rpartition(".")
    module = model.get_submodule(owner)
    layer = f"model.get_submodule({owner!r})" if owner else "the model"
    raise InvalidInput(
        f"the buffer {buffer!r} of {type(module).__name__} at {owner or 'the top'!r} changes in a forward pass, and in "
        "private it never would.",
        hint=f"let {layer} be in evaluation mode in private steps, by eval(), and advance it between them: train() it, "
        "run the model on public data under torch.no_grad(), eval() it again; what changes in evaluation mode too, "
        "change outside of forward",
    )
