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
        for kind in ("DEFINE_string", "DEFINE_boolean", "DEFINE_integer"):
            define = functools.partial(getattr(flags, kind), flag_values=values)
            monkeypatch.setattr(flags, kind, define)
        data_flags.define_data()
    recipe_flags.define_settings(Recipe.settings(), values)
    return values


def test_every_source_is_in_the_help_and_the_docs_in_the_order_of_matching(defined):
    page = (DOCS / "data.md").read_text()
    rows = re.findall(r"(?m)^\| (`.*?`) \| ", page.partition("\n\nThey are tried")[0])
    names = [name for row in rows for name in re.findall("`(.*?)`", row)]
    # Is a name of its own only where such a folder exists.
    names.remove("records/")
    kinds = dict.fromkeys(map(registry.kind_of, names))
    assert tuple(kinds) == registry.SOURCES
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
def test_recipes_refuse_augmentations(values, message):
    with pytest.raises(ValueError, match=message):
        for_dataset("cifar100").override(**values)


def test_recipes_name_their_augmentations():
    recipe = for_dataset("cifar100").override(rand_augment=(2, 15.0), mixup=0.2)
    assert recipe.augmentation_titles == ["RandAugment 2 x 15", "mixup 0.2"]
    assert recipe.mixes and not recipe.override(mixup=0.0).mixes


TFDS = ("tensorflow_datasets",)
KINDS = {
    "digits": ("digits", ("sklearn",)),
    "vtab/dtd": ("vtab", TFDS),
    "vtab-full/kitti_distance": ("vtab", TFDS),
    "photos.csv": ("csv", ()),
    "cifar100/Photos.CSV": ("csv", ()),
    "records/train-*": ("tfrecord", ()),
    "/data/*.tfrecord": ("tfrecord", ()),
    "photos/": ("folder", ()),
    "~/photos": ("folder", ()),
    "a/b/c": ("folder", ()),
    "cifar100": ("tfds", TFDS),
    "cifar100:3.*.*": ("tfds", TFDS),
    "eurosat/rgb:2.*.*": ("tfds", TFDS),
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_what_a_name_means_and_needs(name, kind):
    found = registry.kind_of(name)
    assert (found.name, found.packages) == kind


def test_an_existing_folder_is_only_digits_and_vtab_by_their_names(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names = ("digits", "photos.csv", "cifar100", "vtab/dtd")
    for name in names:
        pathlib.Path(name).mkdir(parents=True)
    kinds = [registry.kind_of(name).name for name in (*names, "./vtab/dtd")]
    assert kinds == ["digits", "folder", "folder", "vtab", "folder"]


def test_names_of_one_data_set():
    assert registry.is_same("photos.csv", "./photos.csv")
    assert not registry.is_same("cifar10", "cifar100")
    assert registry.short_name("vtab/dtd") == "vtab-dtd"
