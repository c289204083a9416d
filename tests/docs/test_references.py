"""Docstrings name functions, classes and modules that exist."""

import ast
import functools
import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("zoo", "keras_vit", "train", "benchmarks")
REFERENCE = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)(?:\(\))?`")
# Of files, as in `train.csv`.
ENDINGS = (".csv", ".py", ".tfrecord")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED):
            yield ast.get_docstring(node) or ""


def references(package):
    for path in sorted((ROOT / package).rglob("*.py")):
        for text in docstrings(path.read_text(encoding="utf-8")):
            for name in REFERENCE.findall(text):
                if not name.endswith(ENDINGS):
                    yield path.relative_to(ROOT), name


def is_module(parts):
    place = ROOT.joinpath(*parts)
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


@functools.cache
def exists(name):
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if not is_module(parts[:count]):
            continue
        if count == len(parts):
            return True
        thing = importlib.import_module(".".join(parts[:count]))
        for part in parts[count:]:
            if part in getattr(thing, "__annotations__", ()):
                return True
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


@pytest.mark.parametrize("package", PACKAGES)
def test_what_docstrings_name_is_there(package):
    found = list(references(package))
    assert found or package == "benchmarks"
    wrong = [f"{path}: {name}" for path, name in found if not exists(name)]
    assert not wrong


def test_a_name_that_is_not_there():
    assert exists("zoo.read") and exists("zoo.Checkpoint.stored_grid")
    assert not exists("zoo.files.names.sizes") and not exists("zoo.none.at_all")
    (name,) = REFERENCE.findall("as `zoo.files.names.sizes` gives them, or `zoo`")
    assert name == "zoo.files.names.sizes"
