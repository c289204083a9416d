"""What docs/paper.md and docs/migration.md name is there."""

import functools
import importlib.util
import inspect
import pathlib
import re

import pytest

import keras_vit
import keras_vit_start
import zoo
from keras_vit import explain
from keras_vit.explain import figures
from train.recipes import Recipe, names, pretraining
from train.run import recipe_flags

masking = pytest.importorskip("train.masked_patches.recipes")

DOCS = pathlib.Path(__file__).parent.parent.parent / "docs"
PAGES = [DOCS / "paper.md", DOCS / "migration.md", DOCS / "design.md"]
ROOTS = {
    "keras_vit": keras_vit,
    "zoo": zoo,
    "explain": explain,
    "figures": figures,
}
# An Image is Worth 16x16 Words, version 2, table 2: H/14 and L/16 from JFT, L/16 from
# ImageNet-21k, BiT-L, Noisy Student; and section 2 of iGPT.
TABLE_2 = {
    "ImageNet": "88.55 ± 0.04|87.76 ± 0.03|85.30 ± 0.02|87.54 ± 0.02|88.4, later 88.5",
    "ImageNet ReaL": "90.72 ± 0.05|90.54 ± 0.03|88.62 ± 0.05|90.54|90.55",
    "CIFAR-10": "99.50 ± 0.06|99.42 ± 0.03|99.15 ± 0.03|99.37 ± 0.06|",
    "CIFAR-100": "94.55 ± 0.04|93.90 ± 0.05|93.25 ± 0.05|93.51 ± 0.08|",
    "Pets": "97.56 ± 0.03|97.32 ± 0.11|94.67 ± 0.15|96.62 ± 0.23|",
    "Flowers": "99.68 ± 0.02|99.74 ± 0.00|99.61 ± 0.02|99.63 ± 0.03|",
    "VTAB": "77.63 ± 0.23|76.28 ± 0.46|72.72 ± 0.21|76.29 ± 1.70|",
    "TPUv3-core-days": "2.5k|0.68k|0.23k|9.9k|12.3k",
}
# Of commands that do not take the flags of a run.
OTHER_FLAGS = {"study", "real_labels", "central_crop", "shown", "tasks", "to"}


def text_of(page):
    """Returns a page, without the names of before in the table of what moved."""
    text, heading, moved = page.read_text().partition("\n## Moved in this version\n")
    return text + heading + re.sub(r"(?m)^\|[^|]*\|", "|", moved)


def prose(page):
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S)


def is_there(dotted):
    root, *attributes = dotted.split(".")
    try:
        functools.reduce(getattr, attributes, ROOTS[root])
    except AttributeError:
        return importlib.util.find_spec(dotted) is not None
    return True


def is_module_or_in_one(dotted):
    try:
        if importlib.util.find_spec(dotted) is not None:
            return True
    except ModuleNotFoundError:
        pass  # its parent is a module
    module, _, function = dotted.rpartition(".")
    return hasattr(importlib.import_module(module), function)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_and_modules_exist(page):
    found = re.findall(
        r"`((?:keras_vit|zoo|explain|figures)(?:\.[A-Za-z_]\w*)+)", prose(page)
    )
    assert len(found) >= 8
    assert [name for name in found if not is_there(name)] == []


@pytest.mark.parametrize(
    "page", [DOCS / "paper.md", DOCS / "design.md"], ids=lambda page: page.name
)
def test_commands_and_modules_of_train_exist(page):
    found = set(re.findall(r"\b((?:train|benchmarks)(?:\.[a-z_]\w*)+)", text_of(page)))
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
    known = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source))
    known |= {field.name for field in Recipe.settings()} | OTHER_FLAGS
    found = set(re.findall(r"--([a-z]\w+)", page.read_text()))
    assert found - known - {"dataset", "data_dir", "images", "out"} == set()


def tables(heading):
    """Returns the tables below a heading of docs/paper.md, as lists of rows."""
    part = (
        PAGES[0].read_text().partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    )
    found = re.findall(r"(?m)(?:^\|.*\|\n)+", part)
    return [
        [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
        for table in found
    ]


def test_table_2_has_the_published_columns_of_all_systems_beside_ours():
    published, systems, own, related = tables("Table 2")
    head, _, *rows = published
    assert head[-1] == "Ours" and len(head) == 7
    found = {name: "|".join(cells[:-1]) for name, *cells in rows}
    assert found == TABLE_2
    assert all(row[-1] for row in rows)
    # The column of ImageNet-21k stands again beside its commands.
    short = {name: cells.split("|")[2][:5] for name, cells in TABLE_2.items()}
    assert {name: number for name, number, _ in own[2:]}.items() <= short.items()
    # Each system has the command that comes nearest, or why there is none.
    names = [name for name, _ in systems[2:]]
    assert names == ["H/14, JFT", "L/16, JFT", "L/16, ImageNet-21k", "BiT-L"] + [
        "Noisy Student"
    ]
    answers = [row[-1] for row in systems[2:] + related[2:]]
    assert all(re.search("`|none: |none, as|row|table|above", cell) for cell in answers)
    igpt = next(row for row in related if row[0].startswith("iGPT"))
    assert igpt[1].startswith("72% on ImageNet") and "masked_patches" in igpt[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_keras_vit_exist(page):
    found = set(re.findall(r"\bkeras-vit (\w+)", page.read_text()))
    assert found <= set(keras_vit_start.COMMANDS)
