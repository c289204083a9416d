import dataclasses
import importlib
import json
import re

import pytest

from train import recipes
from train.recipes import Recipe, pretraining
from zoo import VARIANTS, ViTConfig

NAMES_OF_RECIPES = ["augreg_transfer", "cifar10", "cifar100", "digits", "imagenet2012"]
NAMES_OF_RECIPES += ["own_data", "oxford_flowers102", "oxford_iiit_pet", "vtab"]

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


def has(recipe, **values):
    """Checks settings of a recipe."""
    assert {name: getattr(recipe, name) for name in values} == values


@pytest.mark.parametrize("name", NAMES_OF_RECIPES)
def test_a_recipe_opens_with_its_command_and_is_whole(name):
    assert recipes.names() == NAMES_OF_RECIPES
    module = importlib.import_module(f"train.recipes.{name}")
    shown = {"own_data": "FOLDER", "vtab": "vtab/dtd", "augreg_transfer": "cifar100"}
    command = f"keras-vit finetune --dataset={shown.get(name, name)}"
    assert re.match(rf"{re.escape(command)}\b", module.__doc__)
    assert module.RECIPE.dataset == ("" if name in shown else name)
    module.RECIPE.check()
    json.dumps(dataclasses.asdict(module.RECIPE))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_are_the_papers(name):
    module = importlib.import_module(f"train.recipes.{name}")
    recipe = module.RECIPE
    steps, rates, held_out = PAPER[name]
    has(recipe, steps=steps, validation_fraction=held_out, momentum=0.9, clip_norm=1.0)
    has(recipe, batch_size=512, image_size=384, crop="inception", flip=True)
    assert recipe.learning_rate in rates == set(recipe.learning_rates)
    assert recipe.published.split()[0] in module.__doc__


STEPS = {"cifar100": 10_000, "cifar100:3.*.*": 10_000, "cifar100/plain:3.0.2": 10_000}
STEPS |= {"imagenet2012": 20_000, "rock_paper_scissors": 500, "vtab/dtd": 2_500}
STEPS |= {"own_data": 500, "recipe": 500, "/data/cifar100": 500}


def test_the_recipe_of_a_data_set():
    for dataset, steps in STEPS.items():
        has(recipes.for_dataset(dataset), dataset=dataset, steps=steps)


def test_a_folder_goes_before_a_name_and_has_no_published_number(tmp_path, monkeypatch):
    assert recipes.for_dataset("cifar100:3.*.*").published
    monkeypatch.chdir(tmp_path)
    # A folder that is not there stays one.
    assert recipes.for_dataset("photo/").dataset == "photo/"
    for name in ("photo", "cifar100", "digits"):
        (tmp_path / name).mkdir()
    assert recipes.for_dataset("photo/").dataset == "photo"
    assert recipes.for_dataset("cifar100").steps == 500
    assert recipes.for_dataset("cifar100", "cifar100").published == ""
    # As in train.data.sources, where the digits need no folder.
    assert recipes.for_dataset("digits").crop == "shift"


# Settings that change, and those that follow.
FOLLOWING = [
    ({"steps": 400}, {"warmup_steps": 20, "micro_batches": 8}),
    ({"steps": 1}, {"warmup_steps": 0}),
    ({"steps": 400, "warmup_steps": 7}, {"warmup_steps": 7}),
    ({"learning_rate": 0.1}, {"warmup_steps": 500}),
    ({"batch_size": 1}, {"micro_batches": 1}),
    ({"batch_size": 64}, {"micro_batches": 1}),
    ({"batch_size": 65}, {"micro_batches": 5}),
    ({"batch_size": 96}, {"micro_batches": 2}),
    ({"batch_size": 521}, {"micro_batches": 521}),
    ({"batch_size": 1_048_573}, {"micro_batches": 1_048_573}),
    ({"batch_size": 64, "micro_batches": 8}, {"micro_batches": 8}),
    ({}, {"eval_interval": 500, "checkpoint_interval": 1_000}),
    ({"steps": 25}, {"eval_interval": 10, "checkpoint_interval": 10}),
    ({"steps": 5}, {"eval_interval": 5, "checkpoint_interval": 5}),
    ({"eval_every": 7}, {"eval_interval": 7, "checkpoint_interval": 1_000}),
    ({"checkpoint_every": 9}, {"eval_interval": 500, "checkpoint_interval": 9}),
]


@pytest.mark.parametrize(("values", "following"), FOLLOWING)
def test_settings_follow_others_and_the_rest_stays(values, following):
    recipe = BASE.override(**values)
    has(recipe, **following)
    followers = {"warmup_steps", "micro_batches"}
    before, after = dataclasses.asdict(BASE), dataclasses.asdict(recipe)
    changed = {name for name in before if before[name] != after[name]}
    assert values.keys() - followers <= changed <= {*values} | followers


NAMES = [
    ({"model": "R50+ViT-B_16"}, "cifar100-R50+ViT-B_16"),
    ({"model": ViTConfig(16, 1, 1, 16, 4)}, "cifar100-ViT"),
    ({"dataset": "cifar100:3.*.*"}, "cifar100_3._._-ViT-B_16"),
    ({"dataset": "/home/me/my photos/"}, "my_photos-ViT-B_16"),
    ({"dataset": "photos/.."}, "..-ViT-B_16"),
    ({"dataset": "/"}, "-ViT-B_16"),
]


def test_the_name_of_a_run_stays_in_its_folder():
    for values, name in NAMES:
        assert dataclasses.replace(BASE, **values).run_name == name


def test_dropout_is_the_released_codes():
    rates = {name: dataclasses.replace(BASE, model=name).dropout for name in VARIANTS}
    dropped = {"ViT-L_16", "ViT-H_14", "R50+ViT-B_16"}
    assert rates == {name: 0.1 if name in dropped else 0.0 for name in VARIANTS}
    config = ViTConfig(16, 1, 1, 16, 4)
    assert dataclasses.replace(BASE, model=config).dropout == 0.0


# Another value of every field of which the result is a function.
OTHERS = {
    "epochs": 3.0,
    **{"dataset": "cifar10", "model": "ViT-S_16", "weights": None, "image_size": 224},
    **{"steps": 400, "batch_size": 256, "optimizer": "adam", "learning_rate": 0.01},
    **{"schedule": "linear", "warmup_steps": 100, "weight_decay": 0.1},
    **{"momentum": 0.8, "momentum_dtype": "bfloat16", "clip_norm": None},
    **{"average_decay": 0.9, "layer_decay": 0.75, "frozen": True, "lora_rank": 4},
    **{"loss": "sigmoid", "label_smoothing": 0.1, "class_weights": "balanced"},
    **{"head_bias": -1.0, "pre_logits": True, "dropout_rate": 0.1},
    **{"stochastic_depth_rate": 0.1, "early_stopping": 5, "validation_fraction": 0.1},
    **{"train_examples": 1_000, "test_examples": 1_000, "bits": 12, "crop": "resize"},
    **{"flip": False, "rand_augment": (2, 15.0), "random_erasing": 0.5, "mixup": 0.2},
    **{"cutmix": 1.0, "precision": "mixed_bfloat16", "image_column": "photo"},
    **{"label_column": "kind", "split_column": "fold", "task": "labels"},
    **{"mask_head": "eomt", "ignore": "void"},
}
HARMLESS = {
    **{"micro_batches": 32, "remat": True, "seed": 1, "learning_rates": (0.1,)},
    **{"eval_every": 7, "checkpoint_every": 7, "explained_images": 4},
}


def test_the_published_number_depends_on_every_other_field():
    names = {field.name for field in dataclasses.fields(Recipe)}
    assert names == {*OTHERS, *HARMLESS, "published"}
    recipe = recipes.for_dataset("cifar100")
    for name, value in OTHERS.items():
        others = {"optimizer": "adam"} if name == "weight_decay" else {}
        assert recipe.override(**{name: value}, **others).published == "", name
    for name, value in HARMLESS.items():
        kept = recipe.override(**{name: value}).published
        assert kept == recipe.published != "", name
    # Given, but not changed.
    assert recipe.override(learning_rate=0.03, steps=10_000).published


def test_what_decides_a_run():
    decides = BASE.deciding
    assert [*decides][:3] == ["dataset", "model", "weights"]
    assert decides.keys() == {*OTHERS, *HARMLESS} - {
        *("learning_rates", "eval_every", "checkpoint_every", "explained_images")
    }
    assert BASE.override(bits=12).deciding["bits"] == 12
    stopping = BASE.override(early_stopping=3, eval_every=10).deciding
    assert stopping.keys() - decides.keys() == {"eval_every"}


# How to train your ViT?, section 3.3 and big_vision: layers and magnitude, mixup.
AUGREG = {
    **{"none": (None, 0.0), "light1": ((2, 0), 0.0), "light2": ((2, 10), 0.2)},
    **{"medium1": ((2, 15), 0.2), "medium2": ((2, 15), 0.5)},
    **{"strong1": ((2, 20), 0.5), "strong2": ((2, 20), 0.8)},
}


@pytest.mark.parametrize(
    ("dataset", "images", "head_bias"),
    [("imagenet2012", 1_268_355, -6.9), ("imagenet21k", 14_197_122, -10.0)],
)
def test_the_recipes_of_augreg(dataset, images, head_bias):
    for setup, (rand_augment, mixup) in AUGREG.items():
        recipe = pretraining.for_dataset("x", f"augreg_{dataset}_{setup}")
        has(recipe, rand_augment=rand_augment, mixup=mixup, head_bias=head_bias)
        has(recipe, loss="sigmoid", optimizer="adam", clip_norm=1.0, pre_logits=False)
        has(recipe, learning_rate=1e-3, weight_decay=0.1, schedule="cosine")
        has(recipe, batch_size=4_096, warmup_steps=10_000, momentum_dtype="bfloat16")
        assert recipe.steps == pytest.approx(300 * images / 4_096, rel=2e-4)


# Epochs, images, and rate, schedule, decay and clip of the paper's table 3.
PRE_TRAINING = {
    "imagenet21k": (90, 14_197_122, 1e-3, "linear", 0.03, None),
    "imagenet2012": (300, 1_268_355, 3e-3, "cosine", 0.3, 1.0),
}


@pytest.mark.parametrize("dataset", PRE_TRAINING)
def test_the_papers_recipes_of_pre_training(dataset):
    recipe = pretraining.for_dataset(dataset)
    epochs, images, rate, schedule, decay, norm = PRE_TRAINING[dataset]
    assert recipe.steps == pytest.approx(epochs * images / 4_096, rel=2e-4)
    has(recipe, learning_rate=rate, schedule=schedule, weight_decay=decay)
    has(recipe, clip_norm=norm, dropout=0.1, loss="softmax", pre_logits=True)
    has(recipe, batch_size=4_096, warmup_steps=10_000)
    assert pretraining.for_dataset(f"{dataset}:5.*.*").published == recipe.published


def test_the_recipe_of_a_data_set_from_scratch():
    assert pretraining.for_dataset("photos").model == "ViT-Ti_16"
    assert pretraining.for_dataset("photos", "imagenet2012").published == ""
    assert pretraining.for_dataset("imagenet2012").published


@pytest.mark.parametrize("model", [*VARIANTS, "BiT-R50x1"])
def test_any_recipe_can_be_cut_down(model):
    small = dataclasses.replace(BASE, model=model, stochastic_depth_rate=0.1).smoke()
    assert small.steps <= 10 and small.batch_size <= 16 and small.published == ""
    assert small.stochastic_depth_rate == 0.1
    if model in VARIANTS:
        config = VARIANTS[model]
        has(small.model, patch_size=config.patch_size, stride=config.stride)
        assert small.model.grid_size(small.image_size) == (2, 2)
        assert small.model.hidden_size == 32


def test_recipes_name_their_augmentations():
    recipe = BASE.override(rand_augment=(2, 15.0), mixup=0.2)
    assert recipe.augmentation_titles == ["RandAugment 2 x 15", "mixup 0.2"]
    assert recipe.mixes and not recipe.override(mixup=0.0).mixes


def test_epochs_become_steps_that_take_the_place_of_others():
    recipe = BASE.override(epochs=2.5, batch_size=64)
    assert recipe.steps == BASE.steps and recipe.published == ""
    settled = recipe.of_epochs(1_000)
    has(settled, steps=40, warmup_steps=2, epochs=2.5)
    assert settled.of_epochs(1_000) == settled
    # Less than a batch is a step.
    has(recipe.override(epochs=0.01).of_epochs(100), steps=1, warmup_steps=0)
    has(settled.override(steps=10), epochs=None, steps=10)
    assert BASE.of_epochs(7) == BASE
    with pytest.raises(ValueError, match="epochs must be above 0, got 0"):
        BASE.override(epochs=0.0)
