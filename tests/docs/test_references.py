"""What docstrings and pages name is there: modules, commands, recipes and flags."""

import ast
import dataclasses
import functools
import pathlib
import pydoc
import re

import pytest

import keras_vit_start
from train.recipes import Recipe, names, pretraining

masking = pytest.importorskip("train.masked_patches.recipes")

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("zoo", "keras_vit", "train", "benchmarks")
REFERENCE = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)(?:\(\))?`")
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("paper", "migration", "design")]
# On the pages; these two are modules of keras_vit.
IN_PAGES = re.compile(r"(?<![\w.])((?:keras_vit|zoo|train|explain|figures)(?:\.\w+)+)")
SHORT = {"explain": "keras_vit.explain", "figures": "keras_vit.explain.figures"}
# Files end so, as in `train.csv`.
ENDINGS = (".csv", ".md", ".py", ".tfrecord")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def references(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = isinstance(node, DOCUMENTED) and ast.get_docstring(node)
            for name in REFERENCE.findall(text or ""):
                if not name.endswith(ENDINGS):
                    yield path.relative_to(ROOT), name


@functools.cache
def exists(name):
    """Whether it is a module, what is in one, or a field that has no value."""
    place = ROOT.joinpath(*name.split("."))
    # Modules that are commands have flags that no two may define in one process.
    if place.is_dir() or place.with_suffix(".py").is_file():
        return True
    if pydoc.locate(name) is not None:
        return True
    owner, _, field = name.rpartition(".")
    return field in getattr(pydoc.locate(owner), "__annotations__", ())


@pytest.mark.parametrize("package", PACKAGES)
def test_what_docstrings_name_is_there(package):
    found = list(references(package))
    assert found or package == "benchmarks"
    wrong = [f"{path}: {name}" for path, name in found if not exists(name)]
    assert not wrong
    assert exists("zoo.Checkpoint.stored_grid") and not exists("zoo.none.at_all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_pages_name_is_there(page):
    text = page.read_text()
    found = {name for name in IN_PAGES.findall(text) if not name.endswith(ENDINGS)}
    assert len(found) >= 8
    full = (
        re.sub("^explain|^figures", lambda it: SHORT[it[0]], name) for name in found
    )
    assert [name for name in full if not exists(name)] == []
    commands = set(re.findall(r"\bkeras-vit (\w+)", text))
    assert commands <= set(keras_vit_start.COMMANDS)
    recipes = {*names(), *pretraining.names(), *masking.names()}
    assert set(re.findall(r"--recipe=(\w+)", text)) <= recipes


def test_flags_of_the_paper_exist():
    source = "".join(path.read_text("utf-8") for path in ROOT.glob("train/**/*.py"))
    known = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source))
    known |= {field.name for field in dataclasses.fields(Recipe)}
    found = set(re.findall(r"--([a-z]\w+)", PAGES[0].read_text()))
    assert found and found <= known
