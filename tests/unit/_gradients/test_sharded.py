"""Models in shards are refused by the name of what cut them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import distribute_module

from noisette import check, plan
from noisette.errors import InvalidInput
from tests.support.helpers import refused

DATA = (torch.zeros(9, 4), torch.zeros(9, dtype=torch.long))


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    """This process, alone, as torch takes a group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def fsdp1(mesh: DeviceMesh) -> nn.Module:
    del mesh
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a processor where an accelerator is expected
        return FullyShardedDataParallel(network(), device_id=torch.device("cpu"))


def fsdp2(mesh: DeviceMesh) -> nn.Module:
    model = network()
    fully_shard(model[1], mesh=mesh)
    return model


def tensors(mesh: DeviceMesh) -> nn.Module:
    model = network()
    distribute_module(model[0], mesh)
    return model


@pytest.mark.parametrize(
    ("cut", "name"),
    [
        (fsdp1, r"the model was cut into shards by FullyShardedDataParallel \(FSDP\)"),
        (fsdp2, r"1 was cut into shards by fully_shard \(FSDP2\)"),
        (tensors, r"the parameter '0\.weight' is a DTensor"),
    ],
)
def test_shards_are_refused_by_name(cut: type, name: str, mesh: DeviceMesh) -> None:
    model = cut(mesh)
    (finding,) = check(model, DATA).findings
    assert finding.verdict == "refused"
    with refused(InvalidInput, match=name) as caught:
        plan(model, DATA, epsilon=1.0, delta=1e-3, batch=4, steps=2)
    assert "join()" in caught.value.hint
    assert "int64" not in caught.value.hint
