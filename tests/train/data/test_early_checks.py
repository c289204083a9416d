"""What is refused before TensorFlow is loaded."""

import subprocess
import sys

import pytest

from train.data import early_checks
from train.data.checking import DataError
from train.data.columns import Columns
from train.data.options import DataOptions


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "photos.csv"
    file.write_text("photo;breed;species\na.jpg;pug;dog\n")
    return file


def test_tensorflow_is_not_loaded_for_it():
    code = (
        "import sys, train.data.early_checks as _; print('tensorflow' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout == "False\n", told.stderr


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (Columns(label="bread"), "no column 'bread', which --label_column names"),
        (Columns(image="file", label="breed"), "no column 'file', which --image_c"),
        (Columns(), "none is the label by its name: pass --label_column"),
    ],
)
def test_columns_that_a_table_lacks_are_named(table, columns, words):
    with pytest.raises(DataError, match=words):
        early_checks.check(str(table), DataOptions(columns=columns))
    early_checks.check(str(table), DataOptions(columns=Columns(label="species")))


def test_columns_of_other_data_and_files_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(DataError, match="digits is no table"):
        early_checks.check("digits", DataOptions(columns=Columns(label="x")))
    good, none = tmp_path / "good.csv", tmp_path / "none.csv"
    good.write_text("path,label\na.jpg,rose\n")
    for flag in ("without", "relabel"):
        early_checks.check(None, DataOptions(**{flag: good}))
        for files in (none, [good, none]):
            with pytest.raises(DataError, match="cannot read .*none.csv"):
                early_checks.check(None, DataOptions(**{flag: files}))


def test_what_the_loader_says_better_is_left_to_it(tmp_path):
    file = tmp_path / "latin.csv"
    file.write_bytes("päth,label\n".encode("latin-1"))
    early_checks.check(str(file), DataOptions())
