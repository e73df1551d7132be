"""Models whose parameters are spread over processes: a gradient of one example needs them whole."""

from __future__ import annotations

from torch import nn

from noisette.errors import InvalidInput

__all__ = ["refuse_shards"]

_WRAPPERS = {"FullyShardedDataParallel": "FullyShardedDataParallel (FSDP)", "FSDPModule": "fully_shard (FSDP2)"}
_HINT = (
    "give the whole module, as it was before: under torchrun each process holds all of the model, and join() "
    "divides the batch; a model that fits no single device cannot be trained here (Opacus has ways for it)"
)


def refuse_shards(model: nn.Module) -> None:
    """Raise InvalidInput where torch has cut a model into shards, or made its parameters DTensors.

    They are known by their names: importing what they are made of takes seconds.

    >>> refuse_shards(nn.Linear(2, 1))
    """
    for name, module in model.named_modules():
        if found := _WRAPPERS.keys() & _names(module):
            by = _WRAPPERS[found.pop()]
            raise InvalidInput(f"{name or 'the model'} was cut into shards by {by}.", hint=_HINT)
    for name, parameter in model.named_parameters():
        if "DTensor" in _names(parameter):
            raise InvalidInput(f"the parameter {name!r} is a DTensor, which is spread over processes.", hint=_HINT)


def _names(thing: object) -> set[str]:
    """The names of torch's distributed classes that it is of."""
    return {cls.__name__ for cls in type(thing).__mro__ if cls.__module__.startswith("torch.distributed.")}
