"""A batch is any pytree of tensors with one row for each example, and says where it is not."""

from __future__ import annotations

from collections import UserDict

import numpy as np
import pytest
import torch

from noisette._pytree import as_batch, joined, kind, mapped_over, parts, rows, size, tensors
from noisette.errors import InvalidInput
from tests.support.helpers import refused


def test_numbers_of_all_kinds_become_tensors_of_torch_s_precision() -> None:
    given = {"a": np.zeros((3, 2)), "b": [[1.0], [2.0], [3.0]], "c": (torch.ones(3).double(), [1, 2, 3]), "d": None}
    found = as_batch(given)
    assert found["a"].dtype == found["b"].dtype == torch.float32
    assert found["c"][0].dtype == torch.float64, "a tensor stays what it is"
    assert found["c"][1].tolist() == [1, 2, 3]
    assert found["d"] is None
    assert size(found) == 3
    assert len(tensors(found)) == 4


def test_an_array_that_cannot_be_written_is_copied() -> None:
    """As those of pictures and of memory maps are; torch would warn."""
    given = np.arange(3.0)
    given.flags.writeable = False
    assert as_batch(given).tolist() == [0.0, 1.0, 2.0]


def test_a_mapping_of_another_class_is_a_dict() -> None:
    """As the output of a tokenizer is."""
    found = as_batch(UserDict(tokens=torch.zeros(2, 3), mask=[[1, 0], [1, 1]]))
    assert type(found) is dict
    assert found["mask"].shape == (2, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": torch.zeros(3, 2), "labels": torch.zeros(4)}, r"'tokens'\] has 3 rows and .*'labels'\] has 4"),
        ((torch.zeros(3), torch.tensor(1.0)), r"examples\[1\] is a single number"),
        ((None, {}), "no tensor"),
    ],
)
def test_parts_that_do_not_fit_are_named(given: object, said: str) -> None:
    with refused(InvalidInput, match=said):
        size(given)


@pytest.mark.parametrize(
    "odd", ["text", ["a", "b"], object(), [[1.0], [1.0, 2.0]]], ids=["text", "texts", "object", "ragged"]
)
def test_what_is_no_number_is_named_by_its_place(odd: object) -> None:
    with refused(InvalidInput, match=r"examples\['odd'\]"):
        as_batch({"x": torch.zeros(2), "odd": odd})


def test_rows_parts_and_joined_undo_each_other() -> None:
    batch = {"x": torch.arange(10.0).view(5, 2), "y": (torch.arange(5), None)}
    again = joined(list(parts(batch, 2)))
    assert torch.equal(again["x"], batch["x"])
    assert torch.equal(again["y"][0], batch["y"][0])
    assert again["y"][1] is None
    assert rows(batch, [4, 0])["y"][0].tolist() == [4, 0]
    assert kind(rows(batch, [1])) == kind(batch)
    assert kind({**batch, "x": batch["x"].double()}) != kind(batch)


def test_each_example_is_shown_as_a_batch_of_one() -> None:
    batch = (torch.arange(3.0), {"y": torch.arange(6.0).view(3, 2), "none": None})

    def one(example):
        assert example[0].shape == (1,)
        assert example[1]["y"].shape == (1, 2)
        assert example[1]["none"] is None
        return example[0].sum() + example[1]["y"].sum()

    assert mapped_over(torch.vmap, one, batch).tolist() == [1.0, 6.0, 11.0]
