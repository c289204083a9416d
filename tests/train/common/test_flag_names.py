"""Flags in help and messages: by purpose, as meant, as they are typed."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

import keras_vit_start
from train.common import flag_help, flag_names
from train.data.registry import SOURCES
from train.recipes import Recipe
from train.search.options import Options
from zoo.common.safe_text import as_flags

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize("name", sorted(keras_vit_start.COMMANDS.keys() - {"zoo"}))
def test_help_is_headed_by_the_command_and_has_a_group_for_every_flag(name):
    done = subprocess.run(
        [sys.executable, "-m", "keras_vit_start", name, "--help"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == ""
    heading, *rest = done.stdout.splitlines()
    assert heading == f"keras-vit {name}"
    assert str(ROOT) not in done.stdout and "Other" not in rest
    shown = " ".join(done.stdout.split())
    for kind in SOURCES:
        assert " --dataset: " not in shown or kind.usage in shown
    groups = [row for row in rest if row in flag_help.GROUPS]
    assert groups == [name for name in flag_help.GROUPS if name in groups] != []


def test_every_flag_that_is_meant_is_a_flag_of_some_command():
    known = {name for names in flag_help.GROUPS.values() for name in names.split()}
    for settings in (Recipe, Options):
        known |= {field.name for field in dataclasses.fields(settings)}
    for meant in flag_names._MEANT.values():
        assert {*meant.partition(": ")[0].split()} <= known


MESSAGES = {
    "pass image_size=(224, 224).": "pass --image_size=224.",
    "pass image_size=(224, 320) or": "pass --image_size=224,320 or",
    "or weights=None.": "or --weights=none.",
    "weights='imagenet21k' is": "--weights=imagenet21k is",
    "error: steps must be 1": "error: --steps must be 1",
    "the image_size is": "the --image_size is",
}
UNCHANGED = (
    "after 3 steps the weights",
    "pass --image_size=3",
    "one of a|image_size|b",
)
UNCHANGED += ("runs/image_size/a.npz", "error: --config=a.yaml: steps is")


@pytest.mark.parametrize("message", [*MESSAGES, *UNCHANGED])
def test_arguments_of_python_are_flags_in_a_command(message):
    spelled = {name: f"--{name}" for name in ("image_size", "steps", "weights")}
    assert as_flags(message, spelled) == MESSAGES.get(message, message)
