"""Which tests `make check` runs for a changed file."""

import pathlib
import subprocess

import changed
import pytest

TOP = pathlib.Path("tests")


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("keras_vit/runtimes/onnx/layers.py", "train/export/test_onnx.py"),
        ("keras_vit/runtimes/predictor.py", "keras_vit/test_predictor.py"),
        ("zoo/libraries/array_names.csv", "zoo/libraries/test_formats.py"),
        ("train/study/page.md.jinja", "train/study/test_study.py"),
        ("train/export/templates/onnx.md.jinja", "train/export/test_onnx.py"),
        ("train/explain/templates/explanation.js", "train/explain/test_explain.py"),
        ("train/recipes/vtab.py", "train/recipes/test_recipes.py"),
        ("tests/goldens/image_ops.npz", "train/data/test_augmentation.py"),
        ("colab/classify.ipynb", "colab"),
        ("docs/conf.py", "docs"),
    ],
)
def test_a_changed_file_has_the_tests_that_know_it(file, test):
    assert TOP / test in changed.tests_of(pathlib.Path(file))


def test_layers_of_onnx_graphs_are_not_those_of_the_models():
    found = changed.tests_of(pathlib.Path("keras_vit/runtimes/onnx/layers.py"))
    assert TOP / "keras_vit/layers/test_layers.py" not in found


def test_every_file_of_the_product_has_tests():
    command = ["git", "ls-files", *changed.PRODUCT]
    done = subprocess.run(command, cwd=changed.ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is not a clone: git lists the files")
    files = done.stdout.split("\n")[:-1]
    assert len(files) > 300
    assert [file for file in files if not changed.tests_of(pathlib.Path(file))] == []
