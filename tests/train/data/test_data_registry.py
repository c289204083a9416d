"""What flags, recipes and docs say of data sources and augmentations."""

import dataclasses
import functools
import pathlib
import re

import pytest
from absl import flags

from train.data import data_flags, registry
from train.recipes import Recipe, for_dataset
from train.run import recipe_flags

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def defined():
    """The flags of data and of recipes."""
    values = flags.FlagValues()
    with pytest.MonkeyPatch.context() as monkeypatch:
        for kind in ("string", "boolean", "integer"):
            define = functools.partial(
                getattr(flags, f"DEFINE_{kind}"), flag_values=values
            )
            monkeypatch.setattr(flags, f"DEFINE_{kind}", define)
        data_flags.define_data()
    recipe_flags.define_settings(Recipe.settings(), values)
    return values


def test_every_source_is_in_the_help_and_the_docs_in_the_order_of_matching(defined):
    page = (DOCS / "data.md").read_text()
    names = re.findall(r"(?m)^\| (`.*?`) \| ", page.partition("\n\nThey are tried")[0])
    kinds = [
        registry.kind_of(name)
        for row in names
        for name in re.findall("`(.*?)`", row)
        # Is a name of its own only where such a folder exists.
        if name != "records/"
    ]
    assert tuple(dict.fromkeys(kinds)) == registry.SOURCES
    for kind in registry.SOURCES:
        assert kind.usage in defined["dataset"].help
        module, _, function = kind.loader.partition(":")
        path = pathlib.Path(registry.__file__).with_name("sources") / f"{module}.py"
        assert f"def {function}(" in path.read_text()


def test_every_augmentation_has_a_flag_a_recipe_field_and_docs(defined):
    page = (DOCS / "augmentation.md").read_text()
    fields = {field.name: field for field in dataclasses.fields(Recipe)}
    for name, field in registry.augmentations().items():
        assert fields[name].default == field.default == getattr(Recipe, name)
        assert defined[name].help == field.metadata["usage"]
        assert name in page


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"random_erasing": 1.1}, r"random_erasing must be in \[0, 1\], got 1.1"),
        ({"mixup": -0.1}, "mixup must be at least 0, got -0.1"),
        ({"cutmix": -1.0}, "cutmix must be at least 0"),
        ({"rand_augment": (2,)}, "rand_augment must be None or two numbers"),
        ({"mixup": 0.2, "cutmix": 1.0}, "mixup=0.2 and cutmix=1.0 mix the same"),
    ],
)
def test_recipes_check_augmentations(values, message):
    with pytest.raises(ValueError, match=message):
        for_dataset("cifar100").override(**values)


def test_names_of_one_data_set():
    assert registry.is_same("photos.csv", "./photos.csv")
    assert not registry.is_same("cifar10", "cifar100")
    assert registry.short_name("vtab/dtd") == "vtab-dtd"


@pytest.mark.parametrize(
    ("dataset", "packages"),
    [
        ("digits", ("sklearn",)),
        ("cifar100", ("tensorflow_datasets",)),
        ("vtab/dtd", ("tensorflow_datasets",)),
        ("photos/", ()),
    ],
)
def test_packages_that_a_data_set_needs(dataset, packages):
    assert registry.kind_of(dataset).packages == packages


def test_titles_of_augmentations():
    recipe = Recipe("digits", "ViT-B_16", None, 32, 100, warmup_steps=10)
    recipe = recipe.override(rand_augment=(2, 15.0), mixup=0.2)
    assert recipe.augmentation_titles == ["RandAugment 2 x 15", "mixup 0.2"]
    assert recipe.mixes and not recipe.override(mixup=0.0).mixes
