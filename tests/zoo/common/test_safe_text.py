"""Text made short and safe to print."""

import itertools

import pytest

from zoo.common.safe_text import of_plain_cell, plain_cell, shorten, width


def test_cells_are_no_formulas_and_come_back():
    letters = [itertools.product("'=+-@\t\r\na", repeat=count) for count in range(5)]
    texts = ["".join(text) for text in itertools.chain(*letters)]
    cells = [plain_cell(text) for text in texts]
    assert not [cell for cell in cells if cell[:1] in set("=+-@\t\r\n")]
    assert [of_plain_cell(cell) for cell in cells] == texts
    assert plain_cell("'tis") == "'tis" and plain_cell("a=1") == "a=1"


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("", 3, ""),
        ("sunflower", 9, "sunflower"),
        ("sunflower", 6, "sunfl…"),
        # A Chinese letter is as wide as two.
        ("向日葵", 6, "向日葵"),
        ("向日葵", 5, "向日…"),
        ("向日葵", 4, "向…"),
        # An accent has no width, and stays with its letter.
        ("cafe\u0301", 4, "cafe\u0301"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
    ],
)
def test_shorten(text, most, short):
    assert shorten(text, most) == short
    assert width(short) <= max(most, 1)
