"""docs/design.md: the floors and their rooms, its paths and its picture."""

import graphlib
import importlib.util
import pathlib
import re
import xml.etree.ElementTree

import pytest
from imported import imported

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "design.md"
# A floor must not import these, from anywhere in it.
FORBIDDEN = {
    "zoo": {"keras", "tensorflow", "jax", "torch", "keras_vit", "train", "benchmarks"},
    "keras_vit": {"train", "benchmarks"},
    "train": {"benchmarks", "tests"},
}


@pytest.mark.parametrize("floor", FORBIDDEN)
def test_floors_import_nothing_from_above(floor):
    files = list((ROOT / floor).rglob("*.py"))
    assert len(files) > 20
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported(file)
        if name.partition(".")[0] in FORBIDDEN[floor]
    ]
    assert wrong == []


def rooms_of(package):
    """Returns the rooms that each room of a package imports."""
    files = {}
    for file in (ROOT / package).rglob("*.py"):
        room = file.relative_to(ROOT / package).parts[0].removesuffix(".py")
        files.setdefault(room, []).append(file)
    files.pop("__init__")
    imports = {}
    for room, own in files.items():
        parts = (name.split(".") for file in own for name in imported(file))
        found = {part[1] for part in parts if part[0] == package and len(part) > 1}
        imports[room] = (found & files.keys()) - {room}
    return imports


@pytest.mark.parametrize("package", ["zoo", "keras_vit", "train", "benchmarks"])
def test_rooms_do_not_import_each_other_in_circles(package):
    rooms = rooms_of(package)
    assert len(rooms) > 5
    graphlib.TopologicalSorter(rooms).prepare()  # or raises `CycleError`


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
