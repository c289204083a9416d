"""What flags, recipes and docs say of data sources and augmentations."""

import pathlib
import re

import pytest
from absl import flags

from train.data import data_flags, registry
from train.recipes import for_dataset

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def test_every_source_is_in_the_help_and_the_docs_in_the_order_of_matching(monkeypatch):
    helps = {}
    for kind in ("string", "boolean", "integer"):
        monkeypatch.setattr(
            flags,
            f"DEFINE_{kind}",
            lambda name, _, help, **__: helps.update({name: help}),
        )
    data_flags.define_data()
    page = (DOCS / "data.md").read_text()
    rows = re.findall(r"(?m)^\| (`.*?`) \| ", page.partition("\n\nThey are tried")[0])
    names = [name for row in rows for name in re.findall("`(.*?)`", row)]
    # Is a name of its own only where such a folder exists.
    names.remove("records/")
    kinds = dict.fromkeys(map(registry.kind_of, names))
    assert tuple(kinds) == registry.SOURCES
    for kind in registry.SOURCES:
        assert kind.usage in helps["dataset"]
        module, _, function = kind.loader.partition(":")
        path = pathlib.Path(registry.__file__).with_name("sources") / f"{module}.py"
        assert f"def {function}(" in path.read_text()


def test_recipes_name_their_augmentations():
    recipe = for_dataset("cifar100").override(rand_augment=(2, 15.0), mixup=0.2)
    assert recipe.augmentation_titles == ["RandAugment 2 x 15", "mixup 0.2"]
    assert recipe.mixes and not recipe.override(mixup=0.0).mixes


KINDS = {
    "digits": "digits",
    "vtab/dtd": "vtab",
    "vtab-full/kitti_distance": "vtab",
    "photos.csv": "csv",
    "cifar100/Photos.CSV": "csv",
    "records/train-*": "tfrecord",
    "/data/*.tfrecord": "tfrecord",
    "photos/": "folder",
    "~/photos": "folder",
    "a/b/c": "folder",
    "cifar100": "tfds",
    "cifar100:3.*.*": "tfds",
    "eurosat/rgb:2.*.*": "tfds",
}
PACKAGES = {"digits": ("sklearn",)}
PACKAGES |= dict.fromkeys(["vtab", "tfds"], ("tensorflow_datasets",))


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_what_a_name_means_and_needs(name, kind):
    found = registry.kind_of(name)
    assert (found.name, found.packages) == (kind, PACKAGES.get(kind, ()))


def test_an_existing_folder_is_only_digits_and_vtab_by_their_names(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    kinds = {"digits": "digits", "vtab/dtd": "vtab", "./vtab/dtd": "folder"}
    kinds |= dict.fromkeys(["photos.csv", "cifar100"], "folder")
    for name in kinds:
        pathlib.Path(name).mkdir(parents=True, exist_ok=True)
    assert {name: registry.kind_of(name).name for name in kinds} == kinds


def test_names_of_one_data_set():
    assert registry.is_same("photos.csv", "./photos.csv")
    assert not registry.is_same("cifar10", "cifar100")
    assert registry.short_name("vtab/dtd") == "vtab-dtd"
