"""Settings of runs: flags of augmentation, --config, --print_config, their order."""

import dataclasses
import functools
import json
import pathlib
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from absl import flags

from train import recipes
from train.common import flag_help
from train.common.errors import RunError
from train.common.setting import ABOVE_0, setting
from train.data.registry import CROPS
from train.data.transforms import preprocessing
from train.recipes import pretraining
from train.run import help_text, recipe_flags, settings

ROOT = pathlib.Path(__file__).parents[3]


def overrides(**given):
    return recipe_flags.overrides(given, recipes.Recipe)


@pytest.mark.parametrize(
    ("word", "is_on"),
    [("yes", True), ("on", True), ("true", True), ("no", False), ("off", False)],
)
def test_words_that_turn_mirroring_on_and_off(word, is_on):
    assert recipe_flags._OnOrOff().parse(word) is is_on
    with pytest.raises(ValueError):
        recipe_flags._OnOrOff().parse("maybe")


def test_every_augmentation_of_a_recipe_can_be_turned_off():
    recipe = pretraining.for_dataset("photos/")
    assert recipe.augmentation_titles == ["RandAugment 2 x 10", "mixup 0.2"]
    values = overrides(rand_augment=["none"], mixup=0.0, flip=False, crop="resize")
    plain = recipe.override(**values)
    assert plain.augmentation_titles == []
    assert (plain.crop, plain.flip, plain.rand_augment) == ("resize", False, None)
    with pytest.raises(ValueError, match="mixup=0.2 and cutmix=1.0 .* of them to 0"):
        recipe.override(cutmix=1.0)


def test_crops_are_those_of_the_table():
    assert all(callable(preprocessing.train_crop(name)) for name in CROPS)
    with pytest.raises(ValueError, match="crop must be one of inception, resize, shi"):
        dataclasses.replace(recipes.for_dataset("digits"), crop="centre")


def settle(config=None, find_recipe=recipes.for_dataset, **given):
    flags = {"dataset": None, "recipe": None, "smoke": False} | given
    named = {name: flags.pop(name) for name in ("dataset", "recipe", "smoke")}
    overriding = functools.partial(recipe_flags.overrides, flags)
    return settings.settle(find_recipe, config=config, flags=overriding, **named)


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
    assert settle(config).recipe.learning_rate == 1e-3
    of = found.origins
    assert (of["learning_rate"], of["flip"], of["crop"]) == (
        *("flag", "config file", "recipe"),
    )
    assert (of["warmup_steps"], of["seed"]) == ("follows flag", "default")
    assert (of["dataset"], of["recipe"]) == (
        *("config file", "default: that of the data set"),
    )
    assert settle(config, dataset="cifar10").origins["dataset"] == "flag"
    small = settle(config, smoke=True, seed=3)
    assert (small.recipe.steps, small.recipe.momentum, small.recipe.seed) == (8, 0.5, 3)
    assert (small.origins["steps"], small.origins["seed"]) == ("--smoke", "flag")


def test_a_file_may_leave_the_micro_batches_open(file):
    found = settle(file("dataset: digits\nbatch_size: auto"))
    assert (found.recipe.batch_size, found.recipe.micro_batches) == (64, "auto")
    assert found.origins["micro_batches"] == "follows config file"


def test_a_file_may_name_the_recipe(file):
    config = file({"dataset": "x/", "recipe": "augreg_transfer"}, "a.json")
    found = settle(config)
    assert found.recipe == recipes.for_dataset("x/", "augreg_transfer")
    assert (found.recipe_name, found.origins["recipe"]) == (
        *("augreg_transfer", "config file"),
    )
    assert settle(config, recipe="vtab").recipe == recipes.for_dataset("x/", "vtab")
    # A published number holds as long as nothing that decides it is changed.
    same = file({"dataset": "cifar10", "steps": 10_000}, "b.json")
    assert settle(same).recipe.published
    assert not settle(same, steps=9_999).recipe.published


def test_a_file_of_settings_needs_pyyaml(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(RunError, match=r"needs pyyaml, .*pip install '.\[train\]'"):
        settle(file("steps: 3"))


def test_references_of_references_take_no_memory(file):
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    config = file("\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *levels]))
    tracemalloc.start()
    with pytest.raises(RunError, match=r"line 2 refers to another value by \*"):
        settle(config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_characters_beyond_16_bits(name, file):
    dataset = "/data/\U0001f600 猫"
    config = file({"dataset": dataset, "steps": 3}, name)
    found = settle(config)
    assert found.recipe.dataset == dataset
    assert settle(file(settings.page(found, {}))).recipe == found.recipe
    raw = file(json.dumps({"dataset": dataset}, ensure_ascii=False), name)
    assert settle(raw).recipe.dataset == dataset


KINDS = {
    "finetune": (recipes.for_dataset, "cifar100", None),
    "pretrain": (pretraining.for_dataset, "photos/", None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_is_a_file_of_the_same_settings(kind, file):
    find_recipe, dataset, name = KINDS[kind]
    values = {
        "dataset": dataset,
        "recipe": name,
        "steps": 777,
        "smoke": kind == "finetune",
    }
    found = settle(None, find_recipe, batch_size="auto", **values)
    shown = settings.page(found, {"run_dir": ("runs/x", "default")})
    again = settle(file(shown), find_recipe)
    assert again.recipe == found.recipe.override(published="")
    assert re.search('(?m)^micro_batches: "auto" +# follows flag$', shown)
    assert re.search('(?m)^# run_dir: "runs/x" +# default$', shown)
    # And so is what a run writes, whatever only changes its output.
    written = file(found.recipe.deciding, "config.json")
    assert settle(written, find_recipe).recipe.deciding == found.recipe.deciding


def test_settings_are_shown_without_anything_else(forks, tmp_path):
    flags = ["--dataset=cifar100", "--print_config", "--flip=no"]
    code, shown = forks.run(["train.finetune", *flags], tmp_path, {})
    assert code == 0 and re.search("(?m)^flip: false +# flag$", shown), shown
    assert re.search("(?m)^steps: 10000 +# recipe$", shown)
    assert [*tmp_path.iterdir()] == []


def test_showing_settings_imports_no_keras():
    code = "import sys; sys.argv[1:] = ['finetune', '--dataset=x/', '--print_config']\n"
    code += "import keras_vit_start, atexit\n"
    code += "atexit.register(lambda: print({'keras', 'tensorflow'} & {*sys.modules}))\n"
    code += "keras_vit_start.main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.endswith("\nset()\n"), done


def arrays(path):
    [file] = path.glob("checkpoints/step-*02.npz")
    return {name: np.asarray(array) for name, array in np.load(file).items()}


def test_a_run_starts_elsewhere_from_its_own_settings(forks, tmp_path):
    flags = [
        *("--dataset=digits", "--smoke", "--steps=2", "--seed=3", "--crop=resize"),
        *("--mixup=0.2", "--dropout_rate=0.1", "--run_dir=one"),
    ]
    code, output = forks.run(["train.finetune", *flags], tmp_path, {})
    assert code == 0, output
    flags = ["--config=one/config.json", "--run_dir=two"]
    code, output = forks.run(["train.finetune", *flags], tmp_path, {})
    assert code == 0, output
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "config.json").read_bytes() == (two / "config.json").read_bytes()
    first, second = arrays(one), arrays(two)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    log = [json.loads((run / "report.json").read_text()) for run in (one, two)]
    assert log[0]["test_loss"] == log[1]["test_loss"]


HELP = {
    (): ("your own data", recipes.for_dataset("")),
    ("--dataset=cifar100",): ("cifar100", recipes.for_dataset("cifar100")),
    ("-dataset", "digits", "--smoke"): (
        "digits, smoke",
        recipes.for_dataset("digits").smoke(),
    ),
    ("--recipe=vtab", "--dataset=x/"): ("vtab", recipes.for_dataset("x/", "vtab")),
    ("--dataset",): ("your own data", recipes.for_dataset("")),
}


@dataclasses.dataclass(frozen=True)
class WiderRecipe(recipes.Recipe):
    width: float = setting(1.0, "Factor of the width.", ABOVE_0, group="Model")


def test_a_setting_is_one_field(file):
    shown = flags.FlagValues()
    recipe_flags.define_settings(WiderRecipe.settings(), shown)
    assert shown["width"].help == "Factor of the width."
    shown(["finetune", "--width=2"])
    values = {**shown.flag_values_dict(), "dataset": "x/"}
    recipe = recipes.for_dataset("x/")
    wider = WiderRecipe(**dataclasses.asdict(recipe) | {"published": ""})
    found = settle(find_recipe=lambda *_: wider, **values)
    assert (found.recipe.width, found.origins["width"]) == (2.0, "flag")
    config = file("dataset: x/\nwidth: 3e-1")
    found = settle(config, lambda *_: wider)
    assert found.recipe.width == found.recipe.deciding["width"] == 0.3
    assert re.search("(?m)^width: 0.3 +# config file$", settings.page(found, {}))
    with pytest.raises(ValueError, match="width must be above 0, got -1.0"):
        wider.override(width=-1.0)


def help_of(monkeypatch, names, *words):
    shown = flags.FlagValues()
    for name in {*names, "dataset", "recipe", "config"}:
        flags.DEFINE_string(name, None, "Help.", shown)
    flags.DEFINE_boolean("smoke", False, "Help.", shown)
    monkeypatch.setattr(flags, "FLAGS", shown)
    words = flag_help.parse_others(["x", *words, "--help"])
    help_text.add_values(words, recipes.for_dataset)
    return shown


@pytest.mark.parametrize("words", HELP)
def test_help_has_the_values_of_the_recipe_that_is_named(words, monkeypatch):
    label, recipe = HELP[words]
    names = [field.name for field in dataclasses.fields(recipe)]
    shown = help_of(monkeypatch, {*names} - {"published", "momentum"}, *words)
    told = {name: shown[name].help for name in shown}
    assert told["dataset"] == "Help."
    assert told["steps"] == f"Help. [{label}: {recipe.steps}]"
    assert told["learning_rate"] == f"Help. [{label}: {recipe.learning_rate}]"
    assert told["eval_every"] == f"Help. [{label}: {recipe.eval_interval}]"
    assert told["flip"] == f"Help. [{label}: {'yes' if recipe.flip else 'no'}]"
    assert told["lora_rank"] == f"Help. [{label}: 0]"
    assert told["rand_augment"] == f"Help. [{label}: none]"


def test_help_reads_the_file_of_settings(file, monkeypatch):
    config = file("dataset: digits\nrand_augment: [2, 15]")
    shown = help_of(monkeypatch, ["rand_augment"], f"--config={config}")
    assert shown["rand_augment"].help == f"Help. [{config}: 2,15.0]"


def test_help_without_the_recipe_or_file_that_is_named(monkeypatch, capsys):
    for wrong in ("--recipe=nix", "--config=nix.yaml"):
        assert help_of(monkeypatch, ["steps"], wrong)["steps"].help == "Help."
        told = capsys.readouterr().err
        assert told.startswith("warning: the help has no values: ") and "nix" in told


COMMANDS = {
    "finetune": 20_000,
    "pretrain": 92_897,
    "study": 20_000,
    "study --study=positions": 92_897,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_show_their_recipes(name, forks, tmp_path):
    module, *words = name.split()
    words += ["--help", "--dataset=imagenet2012"]
    code, output = forks.run([f"train.{module}", *words], tmp_path, {})
    steps = COMMANDS[name]
    assert f"--steps: Training steps. [imagenet2012: {steps}]" in output, output
