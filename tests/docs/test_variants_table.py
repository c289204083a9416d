"""The table of variants in docs/models.md is that of the package."""

import pathlib
import re

import keras_vit
import zoo

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "models.md"


def test_table_lists_every_variant():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ([\d,]+) \|$", PAGE.read_text(), re.M)
    assert len(rows) == len(keras_vit.VARIANTS)
    for variant, (function, releases, _) in zip(keras_vit.VARIANTS, rows, strict=True):
        assert getattr(keras_vit, function).__doc__.startswith(f"Returns {variant},")
        assert tuple(re.findall(r"`(.*?)`", releases)) == zoo.releases(variant)


def test_table_of_what_each_function_gives_without_arguments():
    text = PAGE.read_text()
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
