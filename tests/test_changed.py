"""Which tests `make check` runs for a changed file."""

import pathlib

import changed
import pytest


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("zoo/network/released_names.py", "tests/zoo/network"),
        ("zoo/photos/png.py", "tests/zoo"),
        ("train/study/page.md.jinja", "tests/train/study"),
        ("tests/train/data/released_ops.py", "tests/train/data"),
        ("tests/test_changed.py", "tests/test_changed.py"),
        ("tests/changed.py", "tests/test_changed.py"),
        ("tests/test_none.py", "None"),
        ("colab/classify.ipynb", "tests/colab"),
        ("README.md", "tests/docs"),
        ("keras_vit_start.py", "tests/test_start.py"),
        ("setup.cfg", "None"),
    ],
)
def test_a_changed_file_has_the_tests_of_its_room(file, tests):
    assert str(changed.tests_of(pathlib.Path(file))) == tests
    assert tests == "None" or (changed.ROOT / tests).exists()
