"""Settings of runs: flags, --config, --print_config, their order, and their help."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import pytest
from absl import flags

from train import recipes
from train.common.errors import RunError
from train.engine.choices import LOSSES, OPTIMIZERS, SCHEDULES
from train.recipes import pretraining
from train.run import recipe_flags, settings

ROOT = pathlib.Path(__file__).parents[3]


def test_texts_of_flags():
    known = flags.FlagValues()
    recipe_flags.define_settings(dataclasses.fields(recipes.Recipe), known)
    for name, value, *texts in (
        ("flip", True, "yes", "on", "true"),
        ("flip", False, "no", "off", "false"),
        ("batch_size", "auto", "auto"),
        ("batch_size", 12, "12"),
    ):
        for text in texts:
            known(["finetune", f"--{name}={text}"])
            assert known[name].value == value


def settle(config=None, find_recipe=recipes.for_dataset, **given):
    flags = {"dataset": None, "recipe": None, "smoke": False, "config": config}
    return settings.settle(find_recipe, flags | given)


@pytest.fixture
def file(tmp_path):
    def write(content, name="config.yaml"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def test_flags_override_the_file_which_overrides_the_recipe(file):
    config = file(
        "dataset: digits\nsteps: 400\nlearning_rate: 1e-3\nflip: yes\n"
        "rand_augment: [2, 15]\nimage_size: [32, 64]\nmomentum: 0.5\nweights: none\n"
        "micro_batches: auto\nmodel:\n  hidden_size: 8\n  num_layers: 1\n"
        "  num_heads: 2\n  mlp_dim: 16\n  patch_size: 4\n"
    )
    found = settle(config, learning_rate=0.2, steps=100)
    got, base = found.recipe, recipes.for_dataset("digits")
    assert (got.learning_rate, got.steps, got.warmup_steps) == (0.2, 100, 10)
    assert (got.flip, got.momentum, got.weights) == (True, 0.5, None)
    assert (got.rand_augment, got.image_size) == ((2, 15.0), (32, 64))
    assert (got.micro_batches, got.model.num_heads) == ("auto", 2)
    assert got.batch_size == base.batch_size
    plain = settle(config, rand_augment=["none"]).recipe
    assert (plain.learning_rate, plain.rand_augment) == (1e-3, None)
    expected = {
        **{"learning_rate": "flag", "flip": "config file", "crop": "recipe"},
        **{"warmup_steps": "follows flag", "seed": "default"},
        **{"dataset": "config file", "recipe": "default: that of the data set"},
    }
    assert {name: found.origins[name] for name in expected} == expected
    assert settle(config, dataset="cifar10").origins["dataset"] == "flag"
    small = settle(config, smoke=True, seed=3)
    assert (small.recipe.steps, small.recipe.momentum, small.recipe.seed) == (8, 0.5, 3)
    assert (small.origins["steps"], small.origins["seed"]) == ("--smoke", "flag")


def test_epochs_and_steps_are_not_given_together(file):
    found = settle(file("dataset: digits\nsteps: 60\nwarmup_steps: 6"), epochs=2.0)
    assert (found.recipe.epochs, found.recipe.steps) == (2.0, 60)
    assert found.origins["steps"].startswith("replaced: epochs times")
    # The settings of a run have both.
    both = file("dataset: digits\nsteps: 60\nepochs: 2")
    assert settle(both).recipe.epochs == 2.0
    assert settle(both, steps=9).recipe.epochs is None
    for name in ("steps", "warmup_steps"):
        with pytest.raises(ValueError, match=f"--{name}=5 counts .* --epochs=2 leaves"):
            settle(dataset="digits", epochs=2.0, **{name: 5})


def test_an_automatic_batch_size_leaves_the_micro_batches_open(file):
    found = settle(file("dataset: digits\nbatch_size: auto"))
    assert (found.recipe.batch_size, found.recipe.micro_batches) == (64, "auto")
    assert found.origins["micro_batches"] == "follows config file"
    for size, expected in (("auto", 64), (96, 96)):
        recipe = settle(dataset="digits", batch_size=size, micro_batches="auto").recipe
        assert (recipe.batch_size, recipe.micro_batches) == (expected, "auto")


def test_a_file_may_name_the_recipe(file):
    config = file({"dataset": "x/", "recipe": "augreg_transfer"}, "a.json")
    found = settle(config)
    assert found.recipe == recipes.for_dataset("x/", "augreg_transfer")
    assert found.recipe_name == "augreg_transfer"
    assert found.origins["recipe"] == "config file"
    assert settle(config, recipe="vtab").recipe == recipes.for_dataset("x/", "vtab")
    # A published number holds as long as nothing that decides it is changed.
    same = file({"dataset": "cifar10", "steps": 10_000}, "b.json")
    assert settle(same).recipe.published
    assert not settle(same, steps=9_999).recipe.published


def test_a_file_of_settings_needs_pyyaml(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(RunError, match=r"needs pyyaml, .*pip install '.\[train\]'"):
        settle(file("steps: 3"))


@pytest.mark.parametrize(
    ("find_recipe", "dataset", "smoke"),
    [
        (recipes.for_dataset, "cifar100", True),
        # Characters beyond 16 bits, too.
        (pretraining.for_dataset, "/data/\U0001f600 猫", False),
    ],
)
def test_what_is_shown_is_a_file_of_the_same_settings(
    find_recipe, dataset, smoke, file
):
    values = {"dataset": dataset, "steps": 777, "smoke": smoke}
    found = settle(None, find_recipe, batch_size="auto", **values)
    shown = settings.page(found, {"run_dir": ("runs/x", "default")})
    again = settle(file(shown), find_recipe)
    assert again.recipe == found.recipe.override(published="")
    assert re.search('(?m)^micro_batches: "auto" +# follows flag$', shown)
    assert re.search('(?m)^# run_dir: "runs/x" +# default$', shown)
    # And so is what a run writes, whatever only changes its output.
    for name in ("config.json", "config.yaml"):
        written = file(found.recipe.deciding, name)
        assert settle(written, find_recipe).recipe.deciding == found.recipe.deciding


def test_showing_settings_imports_no_keras(tmp_path):
    code = "import atexit, keras_vit_start, sys\n"
    code += "atexit.register(lambda: print({'keras', 'tensorflow'} & {*sys.modules}))\n"
    code += "keras_vit_start.main()"
    words = ["finetune", "--dataset=cifar100", "--print_config", "--flip=no"]
    command = [sys.executable, "-c", code, *words]
    environment = {"PYTHONPATH": str(ROOT)}
    shown = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert shown.endswith("\nset()\n")
    assert re.search("(?m)^flip: false +# flag$", shown)
    assert re.search("(?m)^steps: 10000 +# recipe$", shown)
    assert [*tmp_path.iterdir()] == []


DIGITS, OWN = recipes.for_dataset("digits"), recipes.for_dataset("")
IMAGENET = pretraining.for_dataset("imagenet2012")


@pytest.mark.parametrize(
    ("words", "label", "recipe"),
    [
        ("finetune", "your own data", OWN),
        ("finetune x/ --recipe=vtab", "vtab", recipes.for_dataset("x/", "vtab")),
        ("finetune -dataset digits --smoke", "digits, smoke", DIGITS.smoke()),
        ("finetune --config=a.yaml", "a.yaml", DIGITS.override(rand_augment=(2, 15.0))),
        ("study --study=positions --dataset=imagenet2012", "imagenet2012", IMAGENET),
    ],
)
def test_help_has_the_values_of_the_recipe_that_is_named(
    words, label, recipe, forks, tmp_path
):
    (tmp_path / "a.yaml").write_text("dataset: digits\nrand_augment: [2, 15]\n")
    command, *more = words.split()
    _, shown = forks.run([f"train.{command}", *more, "--help"], tmp_path, {})
    shown = " ".join(shown.split())
    for name, value in {
        "steps": recipe.steps,
        "learning_rate": recipe.learning_rate,
        "eval_every": recipe.eval_interval,
        "flip": "yes" if recipe.flip else "no",
        "lora_rank": 0,
        "rand_augment": ",".join(map(str, recipe.rand_augment or ["none"])),
    }.items():
        entry = re.search(rf" --(\[no\])?{name}: .*?(?= --(\[no\])?\w+: )", shown)[0]
        assert f"[{label}: {value}]" in entry


@pytest.mark.parametrize("wrong", ["--recipe=nix", "--config=nix.yaml"])
def test_help_without_the_recipe_or_file_that_is_named(wrong, forks, tmp_path):
    _, shown = forks.run(["train.finetune", wrong, "--help"], tmp_path, {})
    assert re.search("^warning: the help has no values: .*nix", shown, re.MULTILINE)
    assert "--steps: Training steps.\n" in shown
    for rows in (LOSSES, OPTIMIZERS, SCHEDULES):
        for name, choice in rows.items():
            assert f"{name}: {choice.title}" in " ".join(shown.split())
