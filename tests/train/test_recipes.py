import dataclasses
import importlib
import json
import pathlib
import re

import pytest

from keras_vit import VARIANTS, ViTConfig
from train import recipes
from train.recipes import Recipe

FILES = sorted(
    path.stem
    for path in pathlib.Path(recipes.__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "recipe")
)

# Table 4 and section B.1.1 of the paper: steps, learning rates, part held out.
LARGE, SMALL = {0.003, 0.01, 0.03, 0.06}, {0.001, 0.003, 0.01, 0.03}
PAPER = {
    "cifar10": (10_000, SMALL, 0.02),
    "cifar100": (10_000, SMALL, 0.02),
    "imagenet2012": (20_000, LARGE, 0.01),
    "oxford_flowers102": (500, SMALL, 0.1),
    "oxford_iiit_pet": (500, SMALL, 0.1),
}

BASE = Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000)


def test_every_file_is_found():
    assert set(FILES) == {*PAPER, "digits", "own_data"}
    assert recipes.names() == sorted({*PAPER, "digits"})


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_opens_with_its_command_and_is_whole(name):
    module = importlib.import_module(f"train.recipes.{name}")
    shown = "FOLDER" if name == "own_data" else name
    command = f"python -m train.finetune --dataset={shown}"
    assert re.match(rf"{re.escape(command)}\b", module.__doc__)
    recipe = module.RECIPE
    assert recipe.dataset == ("" if name == "own_data" else name)
    assert isinstance(recipe.model, ViTConfig) or recipe.model in VARIANTS
    config = VARIANTS[recipe.model] if isinstance(recipe.model, str) else recipe.model
    config.grid_size(recipe.image_size)
    json.dumps(dataclasses.asdict(recipe))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_are_the_papers(name):
    module = importlib.import_module(f"train.recipes.{name}")
    recipe = module.RECIPE
    steps, rates, held_out = PAPER[name]
    assert (recipe.steps, recipe.validation_fraction) == (steps, held_out)
    assert recipe.learning_rate in rates
    assert (recipe.batch_size, recipe.image_size) == (512, 384)
    assert (recipe.momentum, recipe.clip_norm) == (0.9, 1.0)
    assert (recipe.crop, recipe.flip) == ("inception", True)
    assert recipe.published.split()[0] in module.__doc__


@pytest.mark.parametrize(
    ("dataset", "steps"),
    [
        ("cifar100", 10_000),
        ("cifar100:3.*.*", 10_000),
        ("cifar100/plain:3.0.2", 10_000),
        ("imagenet2012", 20_000),
        ("rock_paper_scissors", 500),
        ("own_data", 500),
        ("recipe", 500),
        ("/data/cifar100", 500),
    ],
)
def test_the_recipe_of_a_data_set(dataset, steps):
    recipe = recipes.for_dataset(dataset)
    assert (recipe.dataset, recipe.steps) == (dataset, steps)


def test_a_folder_goes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar100").mkdir()
    assert recipes.for_dataset("cifar100").steps == 500
    # As in train.data.sources, where the digits need no folder.
    (tmp_path / "digits").mkdir()
    assert recipes.for_dataset("digits").crop == "shift"


@pytest.mark.parametrize(
    ("values", "warmup_steps"),
    [
        ({"steps": 400}, 20),
        ({"steps": 10}, 0),
        ({"steps": 1}, 0),
        ({"steps": 20_000}, 1_000),
        ({"steps": 400, "warmup_steps": 7}, 7),
        ({"warmup_steps": 0}, 0),
        ({"learning_rate": 0.1}, 500),
    ],
)
def test_the_warm_up_keeps_its_share(values, warmup_steps):
    assert BASE.override(**values).warmup_steps == warmup_steps


@pytest.mark.parametrize(
    ("values", "micro_batches"),
    [
        ({"batch_size": 64}, 1),
        ({"batch_size": 65}, 5),
        ({"batch_size": 96}, 2),
        ({"batch_size": 1024}, 16),
        ({"batch_size": 521}, 521),
        ({"batch_size": 1}, 1),
        ({"batch_size": 64, "micro_batches": 8}, 8),
        ({"micro_batches": 32}, 32),
        ({"steps": 600}, 8),
    ],
)
def test_micro_batches_are_never_larger_than_the_recipes(values, micro_batches):
    recipe = BASE.override(**values)
    assert recipe.micro_batches == micro_batches
    assert recipe.batch_size % micro_batches == 0
    assert recipe.batch_size // micro_batches <= 64


def test_override_leaves_the_rest_and_the_original():
    recipe = BASE.override(model="ViT-L_16", image_size=(224, 320), seed=3)
    changed = {"model": "ViT-L_16", "image_size": (224, 320), "seed": 3}
    assert dataclasses.asdict(recipe) == dataclasses.asdict(BASE) | changed
    assert BASE.model == "ViT-B_16"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 6, "micro_batches": 4}, "batch_size=6 .*micro_batches=4"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"micro_batches": 0}, "micro_batches must be at least 1, got 0"),
        ({"steps": 10, "warmup_steps": 10}, "warmup_steps=10 .*steps=10"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
        ({"validation_fraction": 1.0}, r"validation_fraction .*got 1\.0"),
        ({"validation_fraction": -0.1}, r"validation_fraction .*got -0\.1"),
    ],
)
def test_values_that_do_not_fit_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        BASE.override(**values)


@pytest.mark.parametrize(
    ("values", "directory"),
    [
        ({}, "runs/cifar100-ViT-B_16"),
        ({"model": "R50+ViT-B_16"}, "runs/cifar100-R50+ViT-B_16"),
        ({"dataset": "cifar100:3.*.*"}, "runs/cifar100_3._._-ViT-B_16"),
        ({"dataset": "/home/me/my photos/"}, "runs/my_photos-ViT-B_16"),
        ({"model": ViTConfig(16, 1, 1, 16, 4)}, "runs/cifar100-ViT"),
    ],
)
def test_default_run_directory(values, directory):
    assert dataclasses.replace(BASE, **values).default_run_dir == directory


@pytest.mark.parametrize("dataset", [".", "..", "/", "photos/.."])
def test_the_default_run_directory_stays_in_runs(dataset):
    path = pathlib.PurePosixPath(
        dataclasses.replace(BASE, dataset=dataset).default_run_dir
    )
    assert path.parent == pathlib.PurePosixPath("runs") and path.name != ".."


def test_intervals_follow_the_steps():
    assert (BASE.eval_interval, BASE.checkpoint_interval) == (500, 1_000)
    short = BASE.override(steps=5)
    assert (short.eval_interval, short.checkpoint_interval) == (5, 5)
    given = BASE.override(eval_every=7, checkpoint_every=9)
    assert (given.eval_interval, given.checkpoint_interval) == (7, 9)


def test_dropout_is_the_released_codes():
    rates = {
        name: dataclasses.replace(BASE, model=name).dropout_rate for name in VARIANTS
    }
    dropped = {"ViT-L_16", "ViT-H_14", "R50+ViT-B_16"}
    assert rates == {name: 0.1 if name in dropped else 0.0 for name in VARIANTS}
    config = ViTConfig(16, 1, 1, 16, 4)
    assert dataclasses.replace(BASE, model=config).dropout_rate == 0.0


def test_the_published_number_goes_where_it_is_anothers():
    recipe = recipes.for_dataset("cifar100")
    for kept in ({"seed": 1}, {"micro_batches": 32}, {"eval_every": 5}):
        assert recipe.override(**kept).published == recipe.published != ""
    for dropped in ({"steps": 400}, {"model": "ViT-L_16"}, {"image_size": 224}):
        assert recipe.override(**dropped).published == ""


def test_a_run_of_middling_length_pauses_every_ten_steps():
    middling = BASE.override(steps=25)
    assert (middling.eval_interval, middling.checkpoint_interval) == (10, 10)
