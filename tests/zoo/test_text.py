"""Text made short and safe to print."""

import pytest

from zoo.text import shorten, width


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
