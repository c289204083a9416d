"""What docs/paper.md and docs/migration.md name is there."""

import functools
import importlib.util
import inspect
import pathlib
import re

import pytest

import keras_vit
import zoo
from keras_vit import explain
from keras_vit.explain import figures
from train import recipe_flags
from train.recipes import masking, names, pretraining

DOCS = pathlib.Path(__file__).parent.parent.parent / "docs"
PAGES = [DOCS / "paper.md", DOCS / "migration.md", DOCS / "design.md"]
ROOTS = {
    "keras_vit": keras_vit,
    "zoo": zoo,
    "explain": explain,
    "figures": figures,
}
# Of commands that do not take the flags of a run.
OTHER_FLAGS = {"study", "real_labels", "central_crop", "shown", "tasks", "to"}


def prose(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def is_there(dotted):
    root, *attributes = dotted.split(".")
    try:
        functools.reduce(getattr, attributes, ROOTS[root])
    except AttributeError:
        return importlib.util.find_spec(dotted) is not None
    return True


def is_module_or_in_one(dotted):
    try:
        return importlib.util.find_spec(dotted) is not None
    except ModuleNotFoundError:
        module, _, function = dotted.rpartition(".")
        return hasattr(importlib.import_module(module), function)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_and_modules_exist(page):
    found = re.findall(
        r"`((?:keras_vit|zoo|explain|figures)(?:\.[A-Za-z_]\w*)+)", prose(page)
    )
    assert len(found) >= 8
    assert [name for name in found if not is_there(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_modules_of_train_exist(page):
    found = set(
        re.findall(r"\b((?:train|benchmarks)(?:\.[a-z_]\w*)+)", page.read_text())
    )
    assert found
    assert [name for name in found if not is_module_or_in_one(name)] == []


def test_recipes_exist():
    text = PAGES[0].read_text() + PAGES[1].read_text()
    known = {*names(), *pretraining.names(), *masking.names()}
    found = set(re.findall(r"--recipe=(\w+)", text))
    assert found and found <= known


@pytest.mark.parametrize("page", PAGES[:1], ids=lambda page: page.name)
def test_flags_exist(page):
    source = inspect.getsource(recipe_flags)
    known = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source)) | OTHER_FLAGS
    found = set(re.findall(r"--([a-z]\w+)", page.read_text()))
    assert found - known - {"dataset", "data_dir", "images", "out"} == set()
