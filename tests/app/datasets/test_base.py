from __future__ import annotations

import numpy as np
import pytest
import torch

from noisette.app.datasets import Dataset
from noisette.errors import InvalidInput

X, Y = torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])


def test_tensors_and_numpy_arrays_give_the_same() -> None:
    one = Dataset.from_arrays("a", (X, Y), (X[:2], Y[:2]))
    other = Dataset.from_arrays("a", (X.double().numpy(), Y.numpy().astype(np.int16)), (X[:2].numpy(), Y[:2].numpy()))
    for field in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        assert torch.equal(getattr(one, field), getattr(other, field))
        assert getattr(one, field).dtype == getattr(other, field).dtype
    assert one.train_inputs.dtype == torch.float32
    assert one.train_targets.dtype == torch.int64
    assert one.classes == other.classes == 3
    assert one.shape == (1, 4, 4)


@pytest.mark.parametrize("as_tensor", [True, False])
def test_bytes_are_scaled_and_the_callers_array_is_untouched(as_tensor: bool) -> None:
    pixels = np.array([[0, 51], [255, 102]], dtype=np.uint8)
    data = Dataset.from_arrays("a", (torch.from_numpy(pixels) if as_tensor else pixels, Y[:2]))
    assert data.train_inputs.tolist() == pytest.approx(np.array([[0, 0.2], [1, 0.4]]))
    assert pixels.tolist() == [[0, 51], [255, 102]]


def test_other_numbers_are_taken_as_they_are() -> None:
    rows = np.array([[300, -2], [7, 255]])
    assert Dataset.from_arrays("a", (rows, Y[:2])).train_inputs.tolist() == rows.tolist()


def test_without_test_data_the_test_part_is_empty() -> None:
    data = Dataset.from_arrays("a", (X, Y))
    assert data.test_inputs.shape == (0, 1, 4, 4)
    assert data.test_targets.shape == (0,)


def test_gradients_do_not_flow_into_the_data() -> None:
    assert not Dataset.from_arrays("a", (X.clone().requires_grad_(), Y)).train_inputs.requires_grad


@pytest.mark.parametrize("label", [-1, 3, 77])
@pytest.mark.parametrize("part", ["training", "test"])
def test_labels_out_of_range_are_refused_without_telling_them(label: int, part: str) -> None:
    bad = torch.tensor([0, 1, label])
    train, test = ((X[:3], bad), None) if part == "training" else ((X, Y), (X[:3], bad))
    with pytest.raises(InvalidInput, match=rf"some {part} labels lie outside 0\.\.2") as error:
        Dataset.from_arrays("a", train, test, classes=3)
    assert str(label) not in str(error.value).replace("0..2", "").replace("0, 1, 2, ...", "")


def test_a_largest_label_below_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="classes is 0"):
        Dataset.from_arrays("a", (X[:2], torch.tensor([-1, -1])))


@pytest.mark.parametrize(
    ("train", "test", "match"),
    [
        ((X[:0], Y[:0]), None, "training set is empty"),
        ((X, Y[:5]), None, "6 training inputs and 5 labels"),
        ((X, Y), (X[:2], Y[:3]), "2 test inputs and 3 labels"),
        ((X, Y), (torch.rand(2, 1, 5, 4), Y[:2]), "test examples are 1x5x4, training examples are 1x4x4"),
        ((X, Y.float()), None, "labels are torch.float32, not integers"),
        ((X.to(torch.complex64), Y), None, "complex"),
        ((torch.rand(6), Y), None, r"inputs have shape \(6,\)"),
        ((X, Y[:, None]), None, r"labels \(6, 1\)"),
        ((torch.rand(6, 0), Y), None, "hold no number"),
        ((X, torch.zeros(6).long()), None, "classes is 1"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(train: tuple, test: tuple | None, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        Dataset.from_arrays("a", train, test)


def test_the_constructor_converts_nothing() -> None:
    with pytest.raises(InvalidInput, match=r"torch\.float64 and the labels torch.int64"):
        Dataset("a", X.double(), Y, X[:0], Y[:0], 3)
    with pytest.raises(InvalidInput, match=r"labels torch\.int32"):
        Dataset("a", X, Y, X[:0], Y[:0].int(), 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_example_that_is_not_finite_is_no_reason_to_stop(value: float) -> None:
    inputs = X.clone()
    inputs[3, 0, 1, 1] = value
    assert len(Dataset.from_arrays("a", (inputs, Y)).train_inputs) == 6


def test_printing_tells_nothing_of_the_examples() -> None:
    one = Dataset.from_arrays("a", (X, Y))
    other = Dataset.from_arrays("a", (1 - X, Y.flip(0)))
    assert repr(one) == str(one) == repr(other) == "Dataset(name='a', train=6, test=0, shape=(1, 4, 4), classes=3)"
