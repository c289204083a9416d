"""Which tests `make check` runs for a changed file."""

import pathlib
import subprocess

import changed
import pytest


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("zoo/network/released_names.py", "zoo/libraries/test_formats.py"),
        ("keras_vit/runtimes/predictor.py", "keras_vit/test_predictor.py"),
        ("train/study/page.md.jinja", "train/study/test_study.py"),
        ("train/export/templates/onnx.md.jinja", "train/export/test_onnx.py"),
        ("train/recipes/vtab.py", "train/recipes/test_recipes.py"),
        ("tests/train/data/released_ops.py", "train/data/test_augmentation.py"),
        ("tests/goldens/image_ops.npz", "train/data/test_augmentation.py"),
        ("tests/test_changed.py", "test_changed.py"),
        ("colab/classify.ipynb", "colab"),
        ("docs/conf.py", "docs"),
    ],
)
def test_a_changed_file_has_the_tests_that_know_it(file, test):
    assert changed.TOP / test in changed.tests_of(pathlib.Path(file))


def test_every_file_of_the_product_has_tests():
    command = ["git", "ls-files", *changed.PRODUCT]
    done = subprocess.run(command, cwd=changed.ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is not a clone: git lists the files")
    files = done.stdout.split("\n")[:-1]
    assert len(files) > 300
    assert [file for file in files if not changed.tests_of(pathlib.Path(file))] == []
