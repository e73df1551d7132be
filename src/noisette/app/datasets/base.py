"""`Dataset`: training examples, which are private, beside test examples, which are public."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisette._spec import line, whole
from noisette.app.datasets import _csv
from noisette.app.datasets.column_bounds import Bounds, centred, pair, scaled
from noisette.errors import InvalidInput

__all__ = ["Dataset"]

Array = Tensor | npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples with labels or numbers to predict, checked once so that a training run does not have to.

    `train_inputs` is float32 (N, ...): images (N, C, H, W) in [0, 1], or table rows (N, F). `train_targets` is int64
    (N,) with values in 0..classes-1. `test_inputs` and `test_targets` are alike, with M examples, and M may be 0. The
    shapes, N and `classes` count as public; the training examples are private and never printed. Test examples get no
    protection at all. `train_units`, where there are any, has an id for each training example: whose it is. `labels`,
    where they have names, names the classes.

    Where a number is to be predicted, `target_bounds` has its public bounds, `classes` is 1, and targets are float32
    (N, 1): the bounds lie at -1 and 1, and training targets beyond them are cut off.

    Inputs may hold NaN or infinity: the gradient of such an example counts as zero, and refusing it here would tell
    that it is there.

    >>> Dataset("toy", torch.zeros(8, 3), torch.arange(8) % 2, torch.zeros(0, 3), torch.zeros(0).long(), classes=2)
    Dataset(name='toy', train=8, test=0, shape=(3,), classes=2)
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    train_units: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    target_bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        number = self.target_bounds is not None
        object.__setattr__(self, "classes", whole("classes", self.classes, least=1 if number else 2))
        if self.labels is not None and len([line("labels", name) for name in self.labels]) != self.classes:
            raise InvalidInput(
                f"{len(self.labels)} names of labels do not fit {self.classes} classes.", hint="name each class once"
            )
        _check_part("training", self.train_inputs, self.train_targets, self.classes, number)
        _check_part("test", self.test_inputs, self.test_targets, self.classes, number)
        if len(self.train_inputs) == 0:
            raise InvalidInput("the training set is empty.", hint="give at least one training example")
        if self.test_inputs.shape[1:] != self.train_inputs.shape[1:]:
            raise InvalidInput(
                f"test examples are {_size(self.test_inputs)}, training examples are {_size(self.train_inputs)}.",
                hint="bring both to one shape",
            )

    @property
    def sampled(self) -> int:
        """How many there are of what batches are drawn from: training examples, or units. It is public."""
        return len(self.train_inputs) if self.train_units is None else len(set(self.train_units))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example, without the leading N."""
        return tuple(self.train_inputs.shape[1:])

    def __repr__(self) -> str:
        sizes = f"train={len(self.train_inputs)}, test={len(self.test_inputs)}"
        aim = f"classes={self.classes}" if self.target_bounds is None else f"target_bounds={self.target_bounds}"
        return f"Dataset(name={self.name!r}, {sizes}, shape={self.shape}, {aim})"

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train: tuple[Array, Array],
        test: tuple[Array, Array] | None = None,
        classes: int | None = None,
        *,
        labels: tuple[str, ...] | None = None,
        target_bounds: tuple[float, float] | None = None,
    ) -> Self:
        """A data set from tensors or numpy arrays: `train` and `test` are pairs of inputs (N, ...) and targets (N,).

        uint8 inputs are pixels and scaled by 1/255; other numbers are taken as they are. Without `classes` it is the
        largest label plus one, which makes the largest label public. With `target_bounds`, which are public, targets
        are numbers to predict, and training targets beyond them are cut off.

        >>> import numpy as np
        >>> pixels = np.full((4, 1, 8, 8), 255, dtype=np.uint8)
        >>> Dataset.from_arrays("mine", (pixels, np.array([0, 1, 1, 0]))).train_inputs.max()
        tensor(1.)
        """
        if target_bounds is not None:
            target_bounds, classes = pair("the target", target_bounds), 1
        inputs, targets = _inputs(train[0]), _targets(train[1], target_bounds)
        test_inputs = inputs[:0] if test is None else _inputs(test[0])
        test_targets = targets[:0] if test is None else _targets(test[1], target_bounds)
        if target_bounds is not None:
            targets = targets.clamp(-1, 1)  # of training examples alone, so that errors on test examples are true
        if classes is None:
            numbers = torch.cat([targets, test_targets])
            classes = int(numbers.max()) + 1 if len(numbers) else 2
        return cls(
            name, inputs, targets, test_inputs, test_targets, classes, labels=labels, target_bounds=target_bounds
        )

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        target: str,
        test_fraction: float = 0.0,
        bounds: Bounds | None = None,
        unit: str = "",
        target_bounds: tuple[float, float] | None = None,
    ) -> Self:
        r"""A data set from a comma-separated table with a header: column `target` is the label, the others are numbers.

        Labels are integers or texts; the distinct ones, sorted, become 0..classes-1, so the list of labels is public.
        With `target_bounds`, known beforehand, the target is a number as well, to be predicted as such.
        `bounds` gives the range of every other column, known beforehand, which is brought to [-1, 1]; the table's own
        mean and spread are private. Without bounds numbers are taken as they are.

        About `test_fraction` of the rows become public test rows. Which ones depends on each row's own text alone, so
        that one row more or less moves no other row between the two parts. Where the column `unit` says whose row it
        is, it depends on that alone: nobody's rows are in both parts. That column is no feature.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as here:
        ...     file = Path(here, "iris.csv")
        ...     _ = file.write_text("length,width,kind\n5.1,3.5,setosa\n6.2,2.9,versicolor\n")
        ...     Dataset.from_csv(file, target="kind")
        Dataset(name='iris', train=2, test=0, shape=(2,), classes=2)
        """
        rows = _csv.read(Path(path), target, test_fraction, unit, numbers=target_bounds is not None)
        held, inputs = rows.held_out, rows.features if bounds is None else scaled(rows.features, rows.columns, bounds)
        made = cls.from_arrays(
            Path(path).stem,
            (inputs[~held], rows.targets[~held]),
            (inputs[held], rows.targets[held]),
            classes=len(rows.names),
            labels=rows.names or None,
            target_bounds=target_bounds,
        )
        if not unit:
            return made
        return replace(made, train_units=tuple(one for one, out in zip(rows.units, held, strict=True) if not out))

    @classmethod
    def from_folder(cls, path: str | Path) -> Self:
        """A data set from PNG or JPEG images of one size in ``path/train/CLASS/`` and, if there, ``path/test/CLASS/``.

        The names of the folders under ``train``, sorted, become 0..classes-1. Grey images have one channel, all others
        three.

        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as here:
        ...     for kind in ("cat", "dog"):
        ...         Path(here, "train", kind).mkdir(parents=True)
        ...         Image.new("RGB", (8, 6)).save(Path(here, "train", kind, "1.png"))
        ...     Dataset.from_folder(here).shape
        (3, 6, 8)
        """
        root = Path(path)
        from noisette.app.datasets import _image_folder  # noqa: PLC0415 - Pillow is needed here alone

        names = _image_folder.class_names(root / "train")
        train = _image_folder.read(root / "train", names)
        test = _image_folder.read(root / "test", names) if (root / "test").is_dir() else None
        return cls.from_arrays(root.resolve().name, train, test, classes=len(names), labels=names)


def _inputs(values: Array) -> Tensor:
    tensor = torch.as_tensor(values).detach()
    if tensor.is_complex():
        raise InvalidInput("the inputs are complex numbers.", hint="give real and imaginary parts as two features")
    values32 = tensor.to(torch.float32)
    return values32.div_(255) if tensor.dtype == torch.uint8 else values32  # a fresh copy, so in place is safe


def _targets(values: Array, bounds: tuple[float, float] | None) -> Tensor:
    tensor = torch.as_tensor(values)
    if bounds is not None and not tensor.is_complex():
        numbers = centred(tensor.detach().cpu().double().numpy().astype(np.float64), *bounds)
        return torch.from_numpy(numbers).float()[:, None]
    if tensor.is_floating_point() or tensor.is_complex():
        raise InvalidInput(f"the labels are {tensor.dtype}, not integers.", hint="number the classes 0, 1, 2, ...")
    return tensor.long()


def _check_part(part: str, inputs: Tensor, targets: Tensor, classes: int, number: bool) -> None:
    """Refuse what cannot be trained on. No text here depends on the value of a single example."""
    what, kind = ("targets", torch.float32) if number else ("labels", torch.int64)
    if inputs.dtype != torch.float32 or targets.dtype != kind:
        raise InvalidInput(
            f"the {part} inputs are {inputs.dtype} and the {what} {targets.dtype}, not torch.float32 and {kind}.",
            hint="let Dataset.from_arrays convert them",
        )
    if inputs.ndim < 2 or targets.shape[1:] != ((1,) if number else ()):
        raise InvalidInput(
            f"the {part} inputs have shape {tuple(inputs.shape)} and the {what} {tuple(targets.shape)}.",
            hint=f"give inputs (N, ...) with at least one feature dimension, and {what} (N,)",
        )
    if len(inputs) != len(targets):
        raise InvalidInput(
            f"there are {len(inputs)} {part} inputs and {len(targets)} {what}.",
            hint=f"give one of the {what} for every input",
        )
    if 0 in inputs.shape[1:]:
        raise InvalidInput(
            f"{part} examples are {_size(inputs)}: they hold no number.", hint="give at least one feature"
        )
    if not number and bool(((targets < 0) | (targets >= classes)).any()):
        raise InvalidInput(
            f"some {part} labels lie outside 0..{classes - 1}.",
            hint="number the classes 0, 1, 2, ... and give how many there are as classes",
        )


def _size(inputs: Tensor) -> str:
    return "x".join(str(n) for n in inputs.shape[1:])
