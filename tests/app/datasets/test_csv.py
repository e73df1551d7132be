from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from noisette.app.datasets import Dataset, load
from noisette.errors import InvalidInput
from tests.support.helpers import assert_well_formed, refused


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode())
    return path


def random_rows(count: int) -> list[str]:
    generator = np.random.default_rng(3)
    return [f"{a:.6f},{b:.6f},{int(a > b)}" for a, b in generator.normal(size=(count, 2))]


def test_columns_and_labels_arrive_in_order(tmp_path: Path) -> None:
    path = table(tmp_path, 'a,kind,"b, c"\n1,dog,-2.5\n 3e2 ,cat,4\n0,dog,5\n\n')
    data = Dataset.from_csv(path, "kind")
    assert data.train_inputs.tolist() == [[1, -2.5], [300, 4], [0, 5]]
    assert data.train_targets.tolist() == [1, 0, 1]  # cat, dog
    assert (data.name, data.classes, data.shape) == ("table", 2, (2,))
    assert len(data.test_inputs) == 0


def test_integer_labels_are_sorted_by_value(tmp_path: Path) -> None:
    data = Dataset.from_csv(table(tmp_path, "x,y\n1,10\n2,-1\n3,2\n4,10\n"), "y")
    assert data.train_targets.tolist() == [2, 0, 1, 2]
    assert data.classes == 3


def test_labels_from_zero_stay_what_they_are(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 12}\n" for i in range(24))
    assert Dataset.from_csv(table(tmp_path, "x,y\n" + rows), "y").train_targets.tolist() == [i % 12 for i in range(24)]


def test_windows_files_are_read(tmp_path: Path) -> None:
    data = Dataset.from_csv(table(tmp_path, "\ufeffy,x\r\nno,1\r\nyes,2\r\n"), "y")
    assert data.train_inputs.tolist() == [[1], [2]]


def test_held_out_rows_are_about_the_fraction_and_none_is_lost(tmp_path: Path) -> None:
    data = Dataset.from_csv(table(tmp_path, "a,b,y\n" + "\n".join(random_rows(2000))), "y", test_fraction=0.2)
    assert len(data.train_inputs) + len(data.test_inputs) == 2000
    assert 320 < len(data.test_inputs) < 480  # 400 on average, 18 standard deviation; the rows are fixed
    both = np.concatenate([data.train_inputs.numpy(), data.test_inputs.numpy()])
    assert len(np.unique(both, axis=0)) == 2000


def test_one_row_less_moves_no_other_row(tmp_path: Path) -> None:
    rows = random_rows(200)
    whole = Dataset.from_csv(table(tmp_path, "a,b,y\n" + "\n".join(rows)), "y", test_fraction=0.3)
    for removed in (0, 57, 199):
        fewer = rows[:removed] + rows[removed + 1 :]
        data = Dataset.from_csv(table(tmp_path, "a,b,y\n" + "\n".join(fewer)), "y", test_fraction=0.3)
        for part in ("train_inputs", "test_inputs"):
            left = {tuple(row) for row in getattr(data, part).tolist()}
            assert left <= {tuple(row) for row in getattr(whole, part).tolist()}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no header"),
        ("1,2,0\n3,4,1\n", "no header"),
        ("a,b,y\n", "no row"),
        ("a,b,a,y\n1,2,3,0\n", "columns 1 and 3 of table.csv have the same name"),
        ("a,b,label\n1,2,0\n", "no column 'y'"),
        ("y\n0\n1\n", "target column alone"),
        ("a,b,y\n1,2,0\n1,0\n", "line 3 of table.csv has 2 cells where the header has 3"),
        ("a,b,y\n1,2,0\n1,2,3,0\n", "line 3 of table.csv has 4 cells"),
        ("a,b,y\n1,2,0\n1,secret,0\n", "column 2 of table.csv holds no number on line 3"),
        ("a,b,y\n1,,0\n", "column 2 of table.csv holds no number on line 2"),
        ("a,b,y\n1,NaN,0\n", "column 2 of table.csv holds no finite number on line 2"),
        ("a,b,y\n-inf,1,0\n", "column 1 of table.csv holds no finite number on line 2"),
        ("a,b,y\n1e39,1,0\n", "column 1 of table.csv holds no finite number on line 2"),
        ("a,b,y\n1,2,0\n1,2,\n", "empty label"),
        ("a,b,y\n1,2,0\n1,2,0.5\n", "numbers that are not integers"),
        ("a,b,y\n1,2,1\n1,2,01\n", "one integer in two ways"),
        ("a,b,y\n1,2,0\n3,4,0\n", "column 'y' of table.csv has one label on all rows"),
        ("a,b,y\n1,2,0\n3,4,sec\x07ret\n", "a label in column 'y' of table.csv holds characters"),
        ("a;b;y\n1,5;2;0\n", "table.csv is separated by semicolons"),
        ("a\tb\ty\n1\t2\t0\n", "table.csv is separated by tabs"),
        ('a,b,y\n1,"2,0\n', "not comma-separated"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(InvalidInput, match=match) as error:
        Dataset.from_csv(table(tmp_path, text), "y")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("cell", "hint"), [("", "fill in"), (" NA ", "fill in"), ("nan", "fill in"), ("red", "0 and 1")]
)
def test_missing_values_are_to_be_filled_in(tmp_path: Path, cell: str, hint: str) -> None:
    with refused(InvalidInput, match=rf"column 2 of table\.csv holds no .*\n\nhint: .*{hint}"):
        Dataset.from_csv(table(tmp_path, f"a,b,y\n1,2,0\n1,{cell},1\n"), "y")


def test_a_binary_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    with pytest.raises(InvalidInput, match="not comma-separated text in UTF-8"):
        Dataset.from_csv(tmp_path / "t.csv", "y")


def test_a_missing_table_or_column_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        Dataset.from_csv(tmp_path / "none.csv", "y")
    with pytest.raises(InvalidInput, match="no column 'incom'"):
        Dataset.from_csv(table(tmp_path, "age,income\n1,2\n"), "incom")


@pytest.mark.parametrize(("unit", "hint"), [("nope", "--unit names a column of the table"), ("patent", "--unit names")])
def test_a_unit_that_is_no_column(tmp_path: Path, unit: str, hint: str) -> None:
    path = table(tmp_path, "patient,dose,smoker,y\np,1,0,a\nq,2,1,b\n")
    with refused(InvalidInput, match=f"no column '{unit}'.*\n\nhint: .*{hint}") as error:
        Dataset.from_csv(path, "y", unit=unit)
    assert not any(name in str(error.value) for name in ("patient", "dose", "smoker"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("Alice Smith,34,HIV+\nBob,34,no\n", "seems to have no header"),
        ("Alice Smith,34,34\nBob,34,no\n", "seems to have no header"),
        ("34,34,outcome\n1,2,no\n", "seems to have no header"),
        ("Alice Smith,HIV+\nBob,no\n", "no column 'outcome'"),
        ("Alice Smith,HIV+,outcomes\nBob,no,n\n", "no column 'outcome'"),
        ("Alice Smith,HIV+,outcome\nBob,no,n\n", "column 1 of table.csv holds no number on line 2"),
        ("Alice Smith,HIV+,HIV+\nBob,no,no\n", "columns 2 and 3 of table.csv have the same name"),
    ],
)
def test_without_a_header_no_cell_of_the_first_row_is_told(tmp_path: Path, text: str, match: str) -> None:
    with refused(InvalidInput, match=match) as error:
        Dataset.from_csv(table(tmp_path, text), "outcome")
    assert not any(cell in str(error.value) for cell in ("Alice", "34", "HIV", "outcomes"))


def test_columns_may_be_called_by_numbers(tmp_path: Path) -> None:
    """As pandas does."""
    assert Dataset.from_csv(table(tmp_path, "0,1,y\n1,2,0\n3,4,1\n"), "y").shape == (2,)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_fractions_outside_zero_to_one_are_refused(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(InvalidInput, match="test_fraction"):
        Dataset.from_csv(table(tmp_path, "a,y\n1,0\n2,1\n"), "y", test_fraction=fraction)


def test_the_text_form(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,y\n" + "\n".join(random_rows(100)))
    assert len(load(f"csv:{path}:y").test_inputs) == 0
    held = load(f"csv:{path}:y:0.25")
    assert len(held.test_inputs) == len(Dataset.from_csv(path, "y", test_fraction=0.25).test_inputs) > 0
    for bad in (f"csv:{path}", f"csv:{path}:", "csv::y", f"csv:{path}:0.25"):
        with pytest.raises(InvalidInput):
            load(bad)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,y\n1," + "7" * 5000 + "\n2,3\n", "more than 100 digits"),
        ("", "no header"),
        ("a,y\n", "no row"),
        ("a,y\n1,0\n", "one label on all rows"),
        ("a,y\nnan,0\n1,1\n", "no finite number"),
        ("a,a,y\n1,2,0\n", "the same name"),
        ("a,y\n" + "1" * 200_000 + ",0\n", "not comma-separated"),
    ],
)
def test_tables_that_make_no_data_set(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with refused(InvalidInput, match=match):
        Dataset.from_csv(tmp_path / "t.csv", "y")


def test_any_bytes_are_a_table_or_an_error(tmp_path: Path) -> None:
    rng = random.Random(0)
    good = b"\xef\xbb\xbfa,b,y\n" + b"".join(b"%d,%d,%d\n" % (i, i * i, i % 2) for i in range(20))
    for _ in range(300):
        data = bytearray(good if rng.random() < 0.7 else rng.randbytes(200))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((rng.randrange(256), 0, 10, 34, 44, 46))
        (tmp_path / "t.csv").write_bytes(data)
        try:
            Dataset.from_csv(tmp_path / "t.csv", "y", 0.2)
        except InvalidInput as error:
            assert_well_formed(error)
