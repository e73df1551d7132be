"""What every private estimator has: a budget, bounds that are public, a ledger, and an epsilon when it is fitted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from noisette._spec import whole
from noisette.accounting import Ledger
from noisette.errors import InvalidInput
from noisette.mechanism import Guarantee

__all__ = ["Array", "PrivateEstimator", "Range", "Scale", "tensor"]

Array = npt.NDArray[Any]
Range = tuple[Any, Any]
"""The least and the largest value: two numbers for all columns, or two sequences with one for each."""

_TELLS_NO_VALUE = re.compile(
    r"Found (array|input) |Input (X |y )?contains |X has \d+ feature|The feature names |Feature names are |"
    r"Sparse data |Unknown label type|This \w+ estimator requires y|y should be a 1d array|float\(\) argument must be "
)
"""How those of scikit-learn's errors begin that speak of shapes, types and columns, and quote no value."""

_NAMES_DATES = re.compile(
    r"float\(\) argument must be .* not '(datetime\.)?(date|time|datetime|timedelta|Time\w+|Period)'"
)
"""An error of numpy about objects that are dates or times."""


class Scale:
    """Public bounds of F columns, which bring them to [-1, 1]; what lies outside is cut off.

    `middle` and `half` are (F,): a value x becomes (x - middle) / half.

    >>> Scale((0.0, [120.0, 4.0]), "bounds", columns=2).rows(np.array([[60.0, 9.0]])).tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, bounds: Range | None, name: str, *, columns: int) -> None:
        if bounds is None:
            raise InvalidInput(
                f"{name} are missing, and those of the data are private.",
                hint=f"give {name}=(low, high) from what is known beforehand, as numbers or with one for each column",
            )
        _refuse_dates(bounds, name)
        try:
            low, high = (np.broadcast_to(np.asarray(one, dtype=np.float64), (columns,)) for one in bounds)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{name} do not fit {columns} columns.",
                hint=f"give {name}=(low, high), each a number or {columns} of them",
            ) from None
        with np.errstate(over="ignore", invalid="ignore"):
            self.half = (high - low) / 2
            self.middle = low + self.half
        if not np.all(self.half > 0) or not np.all(np.isfinite(self.half)):
            raise InvalidInput(f"{name} are not a range.", hint="give finite numbers, the low ones below the high ones")
        self.low, self.high = low, high

    def rows(self, values: Array) -> Array:
        """Values (N, F) in units of half the bounds, float64, within [-1, 1]."""
        return np.asarray((np.clip(values, self.low, self.high) - self.middle) / self.half)


class PrivateEstimator(BaseEstimator):
    """The parameters that all private estimators share, and `epsilon_` when they are fitted.

    Those with more name all of them once more: scikit-learn reads parameters off a constructor's signature.

    A ledger is given by its path, so that an estimator can be cloned, saved and sent to another process, and each of
    its copies pays into the same file.
    """

    guarantee_: Guarantee

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Range | None = None,
        *,
        ledger: str | Path | None = None,
        people: str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon, self.delta, self.bounds = epsilon, delta, bounds
        self.ledger, self.people, self.random_state = ledger, people, random_state

    @property
    def epsilon_(self) -> float:
        """What this fit has spent by itself. The ledger knows what all fits on the same people have."""
        return self.guarantee_.epsilon

    def _seed(self) -> int | None:
        if self.random_state is None:
            return None
        return whole("random_state", self.random_state, least=0)

    def _rows(self, X: Any, **options: Any) -> Array:
        """Rows (N, F), as scikit-learn checks them."""
        with _quoting_no_value():
            _refuse_dates(X, "X")
            return _numbers(validate_data(self, X, **options), "X")

    def _rows_and_targets(self, X: Any, y: Any, *, numbers: bool) -> tuple[Array, Array]:
        """Rows (N, F) with targets (N,), which are `numbers` or classes, as scikit-learn checks them."""
        with _quoting_no_value():
            _refuse_dates(X, "X")
            if numbers:
                _refuse_dates(y, "y")
            rows, targets = validate_data(self, X, y, y_numeric=numbers)
            if not numbers:
                check_classification_targets(targets)
            return _numbers(rows, "X"), _numbers(targets, "y") if numbers else np.asarray(targets)

    @contextmanager
    def _books(self) -> Iterator[tuple[Ledger, ...]]:
        """The ledger of the people, open; none where none is given."""
        if self.ledger is None:
            yield ()
            return
        path = Path(self.ledger)
        if self.people is None and not path.exists():
            raise InvalidInput(f"there is no ledger {path} yet.", hint="give people='...', any public name for them")
        with Ledger(path, data=self.people) as book:
            yield (book,)


def _refuse_dates(values: Any, name: str) -> None:
    """Raise where a type says that values are dates or times, of which scikit-learn would take the nanoseconds."""
    given = getattr(values, "dtypes", getattr(values, "dtype", None))
    if given is None and isinstance(values, list | tuple):
        with suppress(ValueError):  # of rows of unlike lengths, which scikit-learn tells of
            given = np.asarray(values).dtype
    if any(getattr(dtype, "kind", "") in tuple("mM") for dtype in np.atleast_1d(np.asarray(given, dtype=object))):
        raise _dates(name)


def _numbers(values: Any, name: str) -> Array:
    """Values as numbers, also where they came as objects."""
    try:
        found = np.asarray(values)
        return found if found.dtype.kind in "fiub" else found.astype(np.float64)
    except TypeError as error:
        if _NAMES_DATES.match(str(error)):
            raise _dates(name) from None
        raise


def _dates(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} holds dates or times, which are no numbers.",
        hint="turn them into numbers whose bounds are public, such as days since a date: "
        "(column - start) / numpy.timedelta64(1, 'D')",
    )


@contextmanager
def _quoting_no_value() -> Iterator[None]:
    """Inside, errors of scikit-learn and numpy about rows are told without the values, which are private."""
    try:
        yield
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        if _NAMES_DATES.match(text := str(error)):
            raise _dates("X or y") from None
        if _TELLS_NO_VALUE.match(text):
            raise
        if "Reshape your data" in text:
            raise InvalidInput(
                "X is no table (N, F).",
                hint="Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) a row",
            ) from None
        if "Complex data not supported" in text:
            raise InvalidInput(
                "Complex data not supported: X or y is complex.", hint="give real and imaginary parts as two columns"
            ) from None
        raise InvalidInput(
            "X or y holds something that is not a number, or not a class.",
            hint="turn texts and dates into numbers (one column of 0 and 1 for each value), or drop such columns",
        ) from None


def tensor(values: Array) -> torch.Tensor:
    """Values as float32, which is what models are trained in."""
    return torch.from_numpy(np.ascontiguousarray(values)).float()
