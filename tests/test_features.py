"""Each feature of `train` is one folder: removing it leaves the rest working."""

import os
import pathlib
import subprocess
import sys

import pytest
from imported import imported

ROOT = pathlib.Path(__file__).parent.parent
FEATURES = sorted(path.parent.name for path in ROOT.glob("train/*/__main__.py"))
# Tests of several features together, which go with none of them.
OF_ALL = tuple(
    f"tests/train/test_{name}.py"
    for name in ("cases", "families_tools", "preparations")
)


@pytest.fixture(scope="module")
def imports():
    """The imports of every file."""
    return {
        path.relative_to(ROOT).as_posix(): set(imported(path))
        for folder in ("keras_vit", "train", "tests", "zoo")
        for path in (ROOT / folder).rglob("*.py")
    }


@pytest.mark.parametrize("feature", FEATURES)
def test_nothing_outside_imports_a_feature(feature, imports):
    inside = (f"train/{feature}/", f"tests/train/{feature}/", *OF_ALL)
    module = f"train.{feature}"
    found = {
        path: sorted(name for name in names if f"{name}.".startswith(f"{module}."))
        for path, names in imports.items()
        if not path.startswith(inside)
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("name", ("finetune", "pretrain", *FEATURES))
def test_a_command_chooses_the_backend_before_keras_is_imported(name):
    module = f"train.{name}" + ".__main__" * (name in FEATURES)
    program = (
        f"import os, sys, {module}; "
        "assert not {'keras', 'tensorflow', 'jax', 'torch'} & {*sys.modules}; "
        "print(os.environ['KERAS_BACKEND'], os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    )
    unset = ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL")
    environment = {key: os.environ[key] for key in os.environ if key not in unset}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "tensorflow 2\n", done.stderr


def test_files_of_tests_have_names_of_their_own():
    # pytest collects the first alone of two files of one name, and only in a whole run.
    names = [path.name for path in ROOT.glob("tests/**/test_*.py")]
    assert sorted(names) == sorted({*names})
