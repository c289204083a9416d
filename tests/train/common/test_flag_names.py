"""What the commands say of flags: by purpose, as meant, as they are typed."""

import os
import pathlib
import subprocess
import sys

import pytest

import keras_vit_start
from train.common import flag_help, flag_names
from train.recipes import Recipe
from zoo.text import as_flags

ROOT = pathlib.Path(__file__).parents[3]
COMMANDS = sorted(keras_vit_start.COMMANDS.keys() - {"zoo"})
MEANT = {
    "finetune --epochs=3": "--steps (steps = epochs * training images / --batch_size)",
    "finetune --lr=0.1": "--learning_rate.",
    "finetune --bs=8": "--batch_size.",
    "finetune --imgsz=224": "--image_size.",
    "finetune --num_classes=10": "--dataset (the classes are those of the data set)",
    "finetune --output=x": "--run_dir.",
    "finetune --label-smoothing=0.1": "write --label_smoothing.",
    "finetune --stepz=3": "did you mean --steps?",
    "finetune --qqq": "keras-vit finetune --help lists all.",
    "evaluate --batch=8": "--batch_size.",
    "evaluate --output_dir=x": "--out_dir.",
    "predict --threshold=0.5": "use --top (each answer has its probability",
    "predict --topk=5": "--top.",
    "export --quantize": "--format.",
    "export --threshold=0.9": "--min_agreement",
    "explain --output=x": "--out.",
    "compare --out=x": "--output.",
    "finetune --epoch=3": "--steps (steps = epochs * training images / --batch_size)",
    "finetune --optimiser=adam": "did you mean --optimizer?",
    "finetune --num_epoch=3": "use --steps (steps = epochs",
}


def run(*words):
    """Runs a command as keras-vit does."""
    return subprocess.run(
        [sys.executable, "-m", "keras_vit_start", *words],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("words", MEANT)
def test_a_flag_of_other_programs_names_the_one_that_is_meant(words):
    done = run(*words.split())
    assert done.returncode == 1 and done.stdout == ""
    flag = words.split()[1].partition("=")[0]
    assert done.stderr.startswith(f"error: There is no flag {flag}: "), done.stderr
    assert MEANT[words] in done.stderr and done.stderr.count("\n") == 1


USAGE = {
    "predict a.keras b.jpg --gallery": "--gallery=VALUE needs its value. An .html file",
    "publish runs/a": "--to is missing. The registry: a folder of models.",
    "predict a.keras": "The photos are missing. Give a model and photos",
    "few_shot a.keras": "The data set is missing. Give one model",
    "explain a.keras": "folder/ --out=DIR. Missing: photos",
    "explain a.keras b.jpg --out=": "folder/ --out=DIR. Missing: --out",
    "export runs/a --format=tflight": "'tflight' is not a format: choose from",
    "export runs/a --format=onnx": "--out is missing. Give one model and a folder: "
    "keras-vit export MODEL --format=onnx --out=DIR",
}


@pytest.mark.parametrize("words", USAGE)
def test_wrong_usage_names_what_is_missing(words):
    done = run(*words.split())
    assert done.returncode == 1 and done.stderr.startswith("error: ")
    assert USAGE[words] in done.stderr and done.stderr.count("\n") <= 2, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_headed_by_the_command_and_has_a_group_for_every_flag(name):
    done = run(name, "--help")
    assert done.returncode == 0 and done.stderr == ""
    heading, *rest = done.stdout.splitlines()
    assert heading == f"keras-vit {name}"
    assert str(ROOT) not in done.stdout and "Other" not in rest
    groups = [row for row in rest if row in flag_help.GROUPS]
    order = [*flag_help.GROUPS]
    assert groups == sorted(groups, key=order.index) and groups


@pytest.mark.parametrize("words", ["few_shot", "publish", "evaluate", "pretrain"])
def test_wrong_usage_is_two_lines_at_most(words):
    done = run(words)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") <= 2
    assert f"keras-vit {words} --help" in done.stderr


def test_every_flag_that_is_meant_is_a_flag_of_some_command():
    known = {name for names in flag_help.GROUPS.values() for name in names.split()}
    known |= {field.name for field in Recipe.settings()}
    for meant in flag_names._MEANT.values():
        assert {*meant.partition(": ")[0].split()} <= known


SPELLED = {"image_size": "--image_size", "steps": "--steps", "weights": "--weights"}
MESSAGES = {
    "pass image_size=(224, 224).": "pass --image_size=224.",
    "pass image_size=(224, 320) or": "pass --image_size=224,320 or",
    "or weights=None.": "or --weights=none.",
    "weights='imagenet21k' is": "--weights=imagenet21k is",
    "error: steps must be 1": "error: --steps must be 1",
    "after 3 steps the weights": "after 3 steps the weights",
    "the image_size is": "the --image_size is",
    "pass --image_size=3": "pass --image_size=3",
    "runs/image_size/a.npz": "runs/image_size/a.npz",
    "error: --config=a.yaml: steps must be": "error: --config=a.yaml: steps must be",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_arguments_of_python_are_flags_in_a_command(message):
    assert as_flags(message, SPELLED) == MESSAGES[message]
