"""When a command line is a search, and which flags do not go with it."""

import inspect
import sys

import in_process
import pytest
from absl import flags

from train import recipes
from train.common.errors import RunError
from train.run import training
from train.search import searching
from train.search.options import Options


@pytest.fixture
def asked(monkeypatch):
    """A function of words to the options of the search that they ask for, or None."""

    def asked(*words):
        seen = []

        def perform(argv, command, package, *_, **__):
            module = sys.modules[package]
            recipe = module.for_dataset(flags.FLAGS.dataset)
            seen.append((recipe, module.options_of(recipe)))

        monkeypatch.setattr("train.run.recipe_flags.perform", perform)
        in_process.run_command("finetune", *words)
        return seen[0]

    return asked


def test_own_data_without_settings_of_a_training_are_searched(asked):
    for words in (
        ["--dataset=photos/"],
        ["--dataset=rock_paper_scissors", "--model=ViT-S_16", "--image_size=160"],
        ["--dataset=photos/", "--flip=no", "--seed=3", "--run_dir=runs/x"],
    ):
        assert asked(*words)[1] == Options(), words
    for words in (
        ["--dataset=photos/", "--steps=3"],
        ["--dataset=photos/", "--epochs=3"],
        ["--dataset=photos/", "--smoke"],
        ["--dataset=photos/", "--recipe=own_data"],
        ["--dataset=photos/", "--find_learning_rate"],
        ["--dataset=photos/", "--mixup=0.2"],
        ["--dataset=cifar100"],
        ["--dataset=digits"],
    ):
        assert asked(*words)[1] is None, words


def test_minutes_take_the_settings_of_own_data_instead_of_a_papers(asked):
    recipe, options = asked("--dataset=cifar100", "--minutes=5", "--models=a,b")
    assert recipe == recipes.for_dataset("cifar100", "own_data")
    assert options == Options(5.0, ("a", "b"), single=False)
    _, options = asked("--dataset=digits", "--minutes=5", "--learning_rate=0.01")
    assert options.given == ("learning_rate",)
    # Digits are no photos.
    recipe, options = asked("--dataset=digits", "--minutes=5", "--single")
    assert recipe == recipes.for_dataset("digits") and options.single


def test_a_search_takes_what_the_flags_of_data_give_a_training():
    taken = [inspect.signature(one).parameters for one in (training.run, searching.run)]
    assert taken[0].keys() - taken[1].keys() == {"task", "extend"}


def test_flags_that_do_not_go_together_are_refused_by_name(asked):
    for flag in ("steps=3", "epochs=2", "frozen", "extend", "recipe=own_data"):
        with pytest.raises(RunError, match=f"--{flag.partition('=')[0]} is of one tr"):
            asked("--dataset=photos/", "--minutes=5", f"--{flag}")
    with pytest.raises(RunError, match="--single is of a search.*pass --minutes"):
        asked("--dataset=cifar100", "--single")


def test_what_does_not_go_with_seeds_is_refused_by_name(monkeypatch):
    refused = []

    def perform(argv, command, package, *_, check_recipe, kind, **__):
        recipe = sys.modules[package].for_dataset(flags.FLAGS.dataset)
        refused.append(kind)
        check_recipe(recipe)

    monkeypatch.setattr("train.run.recipe_flags.perform", perform)
    for words, told in (
        (["--extend", "--steps=9"], "--extend is of one run, and --seeds=3"),
        (["--find_learning_rate"], "--find_learning_rate is of one run, .* without"),
        (["--minutes=2"], "--minutes=2 is too short for 3 .* pass --minutes=3 or"),
    ):
        with pytest.raises(RunError, match=told):
            in_process.run_command("finetune", "--dataset=photos/", "--seeds=3", *words)
    for words in (["--minutes=3"], ["--steps=9"], ["--epochs=2"], []):
        in_process.run_command("finetune", "--dataset=photos/", "--seeds=3", *words)
    in_process.run_command("finetune", "--dataset=photos/")
    assert refused == ["seeds"] * 7 + [""]
