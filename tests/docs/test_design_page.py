"""docs/design.md: the floors and their rooms, its paths and its picture."""

import graphlib
import importlib.util
import itertools
import pathlib
import re
import xml.etree.ElementTree

import pytest
from imported import imported

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "design.md"
# What a floor must not import, from anywhere in it.
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


# Most rooms of a package, and most floors on which they stand.
MOST = {"train": (19, 8), "keras_vit": (9, 7), "zoo": (10, 7), "benchmarks": (29, 8)}


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


@pytest.mark.parametrize("package", MOST)
def test_rooms_stand_on_floors_without_circles(package):
    rooms = rooms_of(package)
    order = graphlib.TopologicalSorter(rooms)
    order.prepare()  # or raises `CycleError`, which names them
    floors = []
    while order.is_active():
        floors.append(sorted(order.get_ready()))
        order.done(*floors[-1])
    most_rooms, most_floors = MOST[package]
    assert len(rooms) <= most_rooms and len(floors) <= most_floors, floors


@pytest.mark.parametrize("package", ["train", "keras_vit", "zoo"])
def test_no_two_names_differ_by_a_suffix(package):
    endings = r"(e|ed|er|ers|ies|ing|ion|ions|or|s|y)$"
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    for folder in folders:
        names = {
            path.stem
            for path in folder.iterdir()
            if path in folders or (path.suffix == ".py" and path.name[0] != "_")
        }
        for one, other in itertools.permutations(names, 2):
            stems = {re.sub(endings, "", name) for name in (one, other)}
            assert not other.startswith(f"{one}_") and len(stems) == 2, folder


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
