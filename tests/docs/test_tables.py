"""Tables of docs have what is published and what the package has."""

import pathlib
import re

import keras_vit
import zoo

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAPER, MODELS = DOCS / "paper.md", DOCS / "models.md"
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


def tables(heading):
    """Returns the tables below a heading of docs/paper.md, as lists of rows."""
    part = PAPER.read_text().partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
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
    assert len(systems[2:]) == 5
    answers = [row[-1] for row in systems[2:] + related[2:]]
    assert all(re.search("`|none: |none, as|row|table|above", cell) for cell in answers)


def test_table_lists_every_variant():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ([\d,]+) \|$", MODELS.read_text(), re.M)
    assert len(rows) == len(keras_vit.VARIANTS)
    for variant, (function, releases, _) in zip(keras_vit.VARIANTS, rows, strict=True):
        assert getattr(keras_vit, function).__doc__.startswith(f"Returns {variant},")
        assert tuple(re.findall(r"`(.*?)`", releases)) == zoo.releases(variant)


def test_table_of_what_each_function_gives_without_arguments():
    text = MODELS.read_text()
    rows = re.findall(r"^\| `([\w+-]+)`(.*?) \| (\d+) \| (.+) \|$", text, re.M)
    told = {
        name: (release, int(image_size), "zeros" in zeros)
        for release, zeros, image_size, functions in rows
        for name in re.findall(r"`(\w+)`", functions)
    }
    expected = {}
    for variant in keras_vit.VARIANTS:
        card = zoo.find(variant, zoo.default_classifier(variant))
        head, _, patch = variant.rpartition("_")
        name = head.replace("+", "_").replace("-", "_") + patch
        expected[name] = (card.release, card.image_size, not card.usable_head)
    assert told == expected
