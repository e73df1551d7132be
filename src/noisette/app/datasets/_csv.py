"""Comma-separated tables: numbers in every column but one, which holds a label, or a number as well."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._regular import opened
from noisette._spec import line as one_line
from noisette._spec import real
from noisette.errors import InvalidInput
from noisette.training._units import is_missing_id

__all__ = ["Table", "read"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a table: `features` float64 (N, F), `targets` (N,), `held_out` bool (N,).

    `columns` names the F features; `units` says whose row each is, where a column does. Targets are int64, the numbers
    of the labels in `names`; or, where numbers were asked for, float64, and there are no names.
    """

    features: npt.NDArray[np.float64]
    targets: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    held_out: npt.NDArray[np.bool_]
    columns: tuple[str, ...]
    names: tuple[str, ...]
    units: tuple[str, ...] = ()


def read(path: Path, target: str, test_fraction: float, unit: str = "", *, numbers: bool = False) -> Table:
    r"""The table in `path`, whose targets are labels, or `numbers`.

    Errors number the line and the column at fault and never quote a cell: without a header, those of the first line are
    somebody's values. Of that line they repeat what the caller has named.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     _ = Path(here, "t.csv").write_text("x,y\n0.5,no\n1,yes\n")
    ...     read(Path(here, "t.csv"), "y", 0.0).names
    ('no', 'yes')
    """
    fraction = real("test_fraction", test_fraction)
    if not 0 <= fraction < 1:
        raise InvalidInput(f"test_fraction is {test_fraction!r}, outside [0, 1).", hint="use 0.2 for a fifth")
    try:
        with opened(path) as file, io.TextIOWrapper(file, newline="", encoding="utf-8-sig") as stream:
            return _parse(csv.reader(stream, strict=True), path.name, target, fraction, unit, numbers)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.", hint="check the path") from None
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(
            f"{path} is not comma-separated text in UTF-8.", hint="export the table as CSV with a header line"
        ) from None


def _parse(lines: Any, file: str, target: str, fraction: float, unit: str, numbers: bool) -> Table:
    header = [name.strip() for name in next(lines, [])]
    column = _target_column(header, file, target)
    whose = _unit_column(header, file, target, unit) if unit else None
    columns = {number: name for number, name in enumerate(header) if number not in (column, whose)}
    features, values, labels, units, held_out = array("d"), array("d"), list[str](), list[str](), array("b")
    for row in lines:
        if not row:
            continue  # a blank line, most often the last one
        if len(row) != len(header):
            raise InvalidInput(
                f"line {lines.line_num} of {file} has {len(row)} cells where the header has {len(header)}.",
                hint="quote cells that hold a comma, and fill in missing ones",
            )
        if whose is not None:
            units.append(row[whose].strip())
            if is_missing_id(units[-1]):
                raise InvalidInput(
                    f"column {unit!r} of {file} does not say whose row line {lines.line_num} is.",
                    hint="fill it in, with a name of its own where nobody knows better, or drop the row",
                )
        held_out.append(_held_out(row if whose is None else units[-1:], fraction))
        labels.append(row[column].strip())
        if numbers:
            values.append(_number(labels[-1], repr(target), file, lines.line_num))
        features.extend(_number(row[number], str(number + 1), file, lines.line_num) for number in columns)
    if not labels:
        raise InvalidInput(f"{file} has a header and no row.", hint="give at least one training example")
    names = () if numbers else _names(labels, file, target)
    index = {name: number for number, name in enumerate(names)}
    return Table(
        np.array(features, dtype=np.float64).reshape(len(labels), len(columns)),
        np.array(values) if numbers else np.array([index[label] for label in labels], dtype=np.int64),
        np.array(held_out, dtype=np.bool_),
        tuple(columns.values()),
        names,
        tuple(units),
    )


def _target_column(header: list[str], file: str, target: str) -> int:
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and mark in header[0]:
            raise InvalidInput(
                f"{file} is separated by {name}, not by commas.", hint="export it with commas, and points in decimals"
            )
    if not header or all(_is_number(name) for name in header):
        raise InvalidInput(f"{file} has no header.", hint=_HEADER)
    first = {name: number for number, name in reversed(list(enumerate(header, start=1)))}
    twice = [(first[name], number) for number, name in enumerate(header, start=1) if first[name] != number]
    if twice:
        _check_names(header, file)
        raise InvalidInput(
            f"columns {twice[0][0]} and {twice[0][1]} of {file} have the same name.",
            hint="give every column its own name",
        )
    _check_there(header, file, target, "name a column as the first line of the file does, which is to be a header")
    if len(header) == 1:
        raise InvalidInput(f"{file} has the target column alone.", hint="add columns of numbers to predict it from")
    return header.index(target)


def _unit_column(header: list[str], file: str, target: str, unit: str) -> int:
    _check_there(header, file, unit, "--unit names a column of the table, as the first line of the file does")
    if unit == target or len(header) == 2:
        raise InvalidInput(
            f"{file} has nothing to predict {target!r} from, where {unit!r} says whose row it is.",
            hint="choose another column, or add columns of numbers",
        )
    return header.index(unit)


def _check_there(header: list[str], file: str, name: str, otherwise: str) -> None:
    if name not in header:
        _check_names(header, file)
        raise InvalidInput(f"{file} has no column {name!r}.", hint=otherwise)


def _check_names(header: list[str], file: str) -> None:
    """Raise where a first line that does not fit looks like a row, which no error may quote."""
    if any(_is_number(name) for name in header):
        raise InvalidInput(f"{file} seems to have no header: its first line holds numbers.", hint=_HEADER)


def _number(cell: str, column: str, file: str, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        encode = "drop the column, or turn it into numbers (one column of 0 and 1 for each value)"
        raise InvalidInput(
            f"column {column} of {file} holds no number on line {line}.",
            hint=_FILL_IN if is_missing_id(cell) or cell.strip().lower() in _ABSENT else encode,
        ) from None
    if not abs(value) <= _LARGEST:  # also true for NaN
        raise InvalidInput(f"column {column} of {file} holds no finite number on line {line}.", hint=_FILL_IN)
    return value


def _names(labels: list[str], file: str, target: str) -> tuple[str, ...]:
    """Distinct labels: integers by value, texts by alphabet."""
    distinct = sorted(set(labels))
    if "" in distinct:
        raise InvalidInput(f"column {target!r} of {file} has an empty label.", hint=_FILL_IN)
    for name in distinct:
        one_line(f"a label in column {target!r} of {file}", name)
    if len(distinct) == 1:
        raise InvalidInput(
            f"column {target!r} of {file} has one label on all rows.",
            hint="give rows of at least two labels, or name the column that has them",
        )
    if not all(_is_number(name) for name in distinct):
        return tuple(distinct)
    if not all(name.lstrip("+-").isdecimal() for name in distinct):
        raise InvalidInput(
            f"column {target!r} of {file} holds numbers that are not integers.",
            hint="a label is an integer or a text; a number is learnt with --task regression --target-bounds LOW,HIGH",
        )
    if any(len(name) > _LONGEST for name in distinct):
        raise InvalidInput(
            f"column {target!r} of {file} holds an integer of more than {_LONGEST} digits.",
            hint="is it the column of the labels? A label is a short integer or a text",
        )
    if len({int(name) for name in distinct}) < len(distinct):
        raise InvalidInput(
            f"column {target!r} of {file} writes one integer in two ways.", hint="write 1 everywhere, not 01 or +1"
        )
    return tuple(sorted(distinct, key=int))


def _held_out(row: list[str], fraction: float) -> bool:
    digest = hashlib.sha256("\x1f".join(row).encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2.0**64


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not math.isnan(float(text))  # "nan" may well be a name


_ABSENT = ("na", "n/a", "?", "-", ".")  # where a number should be; an id may well be called so
_FILL_IN = "fill in or drop such rows"
_HEADER = "name the columns on its first line"
_LONGEST = 100
_LARGEST = float(np.finfo(np.float32).max)  # inputs become float32
