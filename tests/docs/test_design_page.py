"""docs/design.md: the floors and their rooms, its paths and its picture."""

import ast
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
MOST = {"train": (19, 8), "keras_vit": (9, 7), "zoo": (10, 7)}
ENDINGS = r"(e|ed|er|ers|ies|ing|ion|ions|or|s|y)$"


def is_room(path):
    """An entry of a package; not an `__init__.py` that says nothing."""
    if path.name == "__init__.py":
        text = path.read_text(encoding="utf-8")
        defined = (ast.ClassDef, ast.FunctionDef)
        is_empty = not any(isinstance(node, defined) for node in ast.parse(text).body)
        return len(text.splitlines()) >= 40 or not is_empty
    return path.suffix == ".py" or any(path.glob("*.py"))


def rooms_of(package):
    """Returns the rooms that each room of a package imports."""
    rooms = {path.stem: path for path in (ROOT / package).iterdir() if is_room(path)}
    imports = {}
    for room, path in rooms.items():
        files = path.rglob("*.py") if path.is_dir() else [path]
        names = set(itertools.chain.from_iterable(map(imported, files)))
        parts = (name.split(".") for name in names)
        found = {part[1] for part in parts if part[0] == package and len(part) > 1}
        imports[room] = (found & rooms.keys()) - {room}
    return imports


@pytest.mark.parametrize("package", [*MOST, "benchmarks"])
def test_rooms_and_floors(package):
    rooms = rooms_of(package)
    order = graphlib.TopologicalSorter(rooms)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"{package}: a circle of imports: {' <- '.join(error.args[1])}")
    floors = []
    while order.is_active():
        floors.append(sorted(order.get_ready()))
        order.done(*floors[-1])
    drawing = "\n".join(map(", ".join, reversed(floors)))
    most_rooms, most_floors = MOST.get(package, (29, 8))
    assert len(rooms) <= most_rooms, f"{len(rooms)} rooms in {package}:\n{drawing}"
    assert len(floors) <= most_floors, f"{len(floors)} floors in {package}:\n{drawing}"


@pytest.mark.parametrize("package", MOST)
def test_no_two_names_differ_by_a_suffix(package):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    wrong = []
    for folder in sorted(folders):
        names = sorted(
            path.stem
            for path in folder.iterdir()
            if path in folders or (path.suffix == ".py" and path.name[0] != "_")
        )
        for one, other in itertools.combinations(names, 2):
            stems = [re.sub(ENDINGS, "", name) for name in (one, other)]
            if other.startswith(f"{one}_") or stems[0] == stems[1]:
                wrong.append(f"{folder.relative_to(ROOT)}: {one}, {other}")
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
