"""Public bounds of columns: values are brought to [-1, 1] one by one, and what is missing or wrong is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from noisette.app.datasets import Dataset, load
from noisette.app.datasets.column_bounds import beside, scaled
from noisette.app.datasets.sources.breast_cancer import BOUNDS
from tests.support.helpers import refused

CSV = "age,kind,dose\n30,a,0.5\n60,b,7\n200,a,-3\n0,b,1\n"


def table(folder: Path, bounds: str | None) -> Path:
    path = folder / "t.csv"
    path.write_text(CSV)
    if bounds is not None:
        (folder / "t.bounds.toml").write_text(bounds)
    return path


def test_columns_are_scaled_by_the_bounds_beside_the_table(tmp_path: Path) -> None:
    path = table(tmp_path, "age = [0, 120]\ndose = [-1, 1.0]\n")
    data = load(f"csv:{path}:kind")
    assert data.train_inputs.tolist() == [[-0.5, 0.5], [0, 1], [1, -1], [-1, 1]]
    assert load(f"csv:{table(tmp_path / '..', None)}:kind").train_inputs[0].tolist() == [30, 0.5], "as they are"


def test_bounds_may_be_given_by_hand_in_any_order(tmp_path: Path) -> None:
    bounds = {"dose": (0.0, 10.0), "age": (0.0, 100.0)}
    data = Dataset.from_csv(table(tmp_path, None), "kind", bounds=bounds)
    assert data.train_inputs[1].tolist() == pytest.approx([0.2, 0.4])


def test_no_row_has_a_say_in_the_scale_of_another() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2)) * 100
    bounds = {"a": (-10.0, 10.0), "b": (0.0, 1.0)}
    whole = scaled(rows, ["a", "b"], bounds)
    for row in (0, 17, 49):
        assert np.array_equal(scaled(rows[row : row + 1], ["a", "b"], bounds), whole[row : row + 1])
    assert np.abs(whole).max() == 1


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (
            "age = [0, 120]\n",
            r"in .*t\.bounds\.toml, column 'dose' has no bounds\.\n\nhint: write a line dose = \[LOW, HIGH\] into it",
        ),
        (
            "age = [0, 120]\ndose = [0, 1]\nheight = [0, 3]\n",
            r"in .*t\.bounds\.toml, .* 'height', which is not a column\.\n\nhint: take the line of 'height' out of it",
        ),
        ("age = [0, 120]\ndose = [1, 1]\n", "'dose' are not a range"),
        ("age = [0, 120, 5]\ndose = [0, 1]\n", "'age' are not a range"),
        ("age = [0, nan]\ndose = [0, 1]\n", "bound of 'age'"),
        ("age = 120\ndose = [0, 1]\n", r"bounds of 'age' are not a range.*\n\nhint: .*: \[0, 120\]$"),
        ("age = '0-120'\ndose = [0, 1]\n", r"bounds of 'age' are not a range.*\n\nhint: .*: \[0, 120\]$"),
        ("age = [0, \n", "is not TOML"),
    ],
)
def test_wrong_bounds_are_named(tmp_path: Path, bounds: str, message: str) -> None:
    path = table(tmp_path, bounds)
    with refused(match=message):
        load(f"csv:{path}:kind")


@pytest.mark.parametrize("name", ["mean radius", "größe", "a.b", 'say "x"'])
def test_the_line_that_is_asked_for_is_toml(tmp_path: Path, name: str) -> None:
    path, quoted = tmp_path / "t.csv", name.replace('"', '""')
    path.write_text(f'"{quoted}",age,kind\n1,0,a\n2,0,b\n')
    age = "age = [0, 120]\n"
    path.with_suffix(".bounds.toml").write_text(age)
    with refused(match="has no bounds") as error:
        load(f"csv:{path}:kind")
    line = error.value.hint.removeprefix("write a line ").partition(" into it")[0]
    path.with_suffix(".bounds.toml").write_text(age + line.replace("LOW, HIGH", "0, 2"), encoding="utf-8")
    assert load(f"csv:{path}:kind").train_inputs.tolist() == [[0, -1], [1, -1]]


@pytest.mark.parametrize("bounds", ["", "age = [0, 120]\n"])
def test_bounds_of_a_table_without_a_header_tell_no_cell(tmp_path: Path, bounds: str) -> None:
    """The first row of this one has a cell that is called like the target."""
    path = tmp_path / "t.csv"
    path.write_text("12a,HIV,kind\n1,2,a\n3,4,b\n")
    path.with_suffix(".bounds.toml").write_text(bounds)
    with refused(match=r"in .*t\.bounds\.toml, the bounds are of no column of the table") as error:
        load(f"csv:{path}:kind")
    assert not any(cell in str(error.value) for cell in ("12a", "HIV"))


def test_bounds_that_were_given_by_hand_are_in_no_file(tmp_path: Path) -> None:
    with refused(match=r"^column 'dose' has no bounds\.\n\nhint: give bounds for every column"):
        Dataset.from_csv(table(tmp_path, None), "kind", bounds={"age": (0.0, 1.0)})


def test_a_table_without_such_a_file_has_no_bounds(tmp_path: Path) -> None:
    assert beside(table(tmp_path, None)) is None


def test_breast_cancer_is_all_there_and_within_its_bounds() -> None:
    data, bunch = load("breast-cancer"), load_breast_cancer()
    assert (len(data.train_inputs), len(data.test_inputs), data.shape, data.classes) == (455, 114, (30,), 2)
    assert list(BOUNDS) == list(bunch.feature_names)
    lower, upper = np.array(list(BOUNDS.values())).T
    inside = (bunch.data >= lower) & (bunch.data <= upper)
    assert inside.mean() > 0.999, "bounds that cut off much are wrong ones"
    order = np.argsort(np.arange(569) % 5 != 0, kind="stable")  # test rows first
    back = np.concatenate([data.test_inputs.numpy(), data.train_inputs.numpy()]) * (upper - lower) / 2
    back += (upper + lower) / 2
    assert np.allclose(np.where(inside[order], back, 0), np.where(inside[order], bunch.data[order], 0), rtol=1e-5)
    assert np.array_equal(np.concatenate([data.test_targets, data.train_targets]), bunch.target[order])


def test_bounds_beside_a_table_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "t.bounds.toml"
    for text in ("a = 1", "a = [1, 1e999]", "a = [-1e308, 1e308]", "a = " + "[" * 9999, "a = " + "1" * 5000, "a", "\0"):
        path.write_text(text)
        with refused(match=r"t\.bounds\.toml"):
            beside(tmp_path / "t.csv")


def test_narrow_bounds_cut_off_without_a_warning() -> None:
    rows = np.array([[1e38], [-1e38], [0.0]])
    assert scaled(rows, ["a"], {"a": (0.0, 1e-300)}).tolist() == [[1.0], [-1.0], [-1.0]]
