"""Each feature of `train` is one folder: removing it leaves the rest working."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from imported import imported

from train.tasks import CLASSES, TASKS

ROOT = pathlib.Path(__file__).parent.parent
FEATURES = sorted(path.parent.name for path in ROOT.glob("train/*/__main__.py"))
# The folders of tasks, by what their rows name; classes are of train/run.
TASK_FOLDERS = sorted(
    {kind.run.split(".")[1] for name, kind in TASKS.items() if name != CLASSES}
)
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


@pytest.mark.parametrize("task", TASK_FOLDERS)
def test_a_task_is_named_by_its_registration_alone(task, imports):
    # Without its folder and its row of train/tasks all other modules work.
    inside = (f"train/{task}/", f"tests/train/{task}/")
    module = f"train.{task}"
    found = {
        path: sorted(name for name in names if f"{name}.".startswith(f"{module}."))
        for path, names in imports.items()
        if not path.startswith(inside)
    }
    assert {path: names for path, names in found.items() if names} == {}
    texts = [
        path
        for path in imports
        if not path.startswith((*inside, "tests/"))
        # Such a text may be imported by its name.
        and re.search(rf"[\"']{module}\b", (ROOT / path).read_text("utf-8"))
    ]
    # A folder may register a source of data, too.
    assert {*texts} - {"train/data/registry.py"} == {"train/tasks/__init__.py"}


def test_each_task_has_a_folder_of_its_own():
    assert {"several_labels", "numbers", "masks"} <= {*TASK_FOLDERS}
    assert len(TASK_FOLDERS) == len(TASKS) - 1
    assert not {*TASK_FOLDERS} & {*FEATURES}


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
