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
