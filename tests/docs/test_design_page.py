"""docs/design.md: the floors, its paths and its picture."""

import ast
import importlib.util
import pathlib
import re
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "design.md"
# What a floor must not import, from anywhere in it.
FORBIDDEN = {
    "zoo": {"keras", "tensorflow", "jax", "torch", "keras_vit", "train", "benchmarks"},
    "keras_vit": {"train", "benchmarks"},
    "train": {"benchmarks", "tests"},
}


def imported(file):
    """Yields the packages that a file imports, inside of functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("floor", FORBIDDEN)
def test_floors_import_nothing_from_above(floor):
    files = list((ROOT / floor).rglob("*.py"))
    assert len(files) > 20
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported(file)
        if name in FORBIDDEN[floor]
    ]
    assert wrong == []


def test_paths_on_the_page_exist():
    paths = re.findall(r"`((?:zoo|keras_vit|train|tests)/[\w./]+)`", PAGE.read_text())
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_rooms_of_the_picture_are_modules():
    picture = xml.etree.ElementTree.parse(ROOT / "docs" / "house.svg")
    namespace = "{http://www.w3.org/2000/svg}"
    rooms = [
        room
        for text in picture.iter(f"{namespace}text")
        if text.get("class") == "name"
        for room in text.text.split(", ")
    ]
    assert len(rooms) > 20
    places = ["train", "keras_vit", "keras_vit.models", "zoo", "benchmarks"]
    missing = [
        room
        for room in rooms
        if not any(importlib.util.find_spec(f"{place}.{room}") for place in places)
    ]
    assert missing == []
