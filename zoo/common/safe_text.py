"""Untrusted text made safe to print: control characters escaped, length bounded."""

import re
import reprlib
import unicodedata
from collections.abc import Mapping, Sequence

# Characters of an error message, and of one value in it.
_MOST_OF_MESSAGE = 2000
_MOST_OF_VALUE = 100
# Joiners in words and emoji, and marks in Hebrew and Arabic names: they have no width
# and reorder nothing.
_JOINERS = "\u200c\u200d\u061c\u200e\u200f"
# Reorders the text that follows, up to the end of the line.
_REORDERING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# With one of these a formula begins in the cell of a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
# A value as Python writes it, or none.
_OF_PYTHON = r"""(?:\([\d, ]+\)|'[^'\n]*'|"[^"\n]*"|(?:None|True|False)\b)?"""
_UNSAFE_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")


def printable(text: str, most: int = _MOST_OF_MESSAGE, lines: bool = False) -> str:
    r"""Escapes control characters, and shortens text to `most` in its middle."""
    end = most // 3
    start = most - end - len(" [...] ")
    if len(text) > most:
        text = f"{text[:start]} [...] {text[-end:]}"
    if text.isprintable():
        return text
    text = "".join(c if _harmless(c, lines) else _spelled(c) for c in text)
    # A character may have become ten.
    return text if len(text) <= most else f"{text[:start]} [...] {text[-end:]}"


def brief(value: object) -> str:
    """Returns the `repr` of a value, at most `_MOST_OF_VALUE` characters."""
    # Arrays have rows on lines of their own.
    text = re.sub(r"\s*\n\s*", " ", _repr.repr(value))
    return printable(text, _MOST_OF_VALUE)


def as_flags(text: str, spelled: Mapping[str, str]) -> str:
    """Returns a message about arguments of Python in the words of a command line.

    `spelled` has the flag for each name of an argument, such as `"--image_size"`.
    Settings in a file of `--config` keep the names that it has.

    Example:
        >>> as_flags("pass image_size=(224, 224).", {"image_size": "--image_size"})
        'pass --image_size=224.'
    """
    if not spelled or "--config=" in text:
        return text
    names = "|".join(sorted(map(re.escape, spelled), key=len, reverse=True))
    start = rf"(?<![\w\-./'\"|])(?P<name>{names})"

    def flag(match):
        value = match.groupdict().get("value")
        if "_" not in match["name"] and value is None and not is_first(match):
            return match[0]  # "steps" is a word of English
        return spelled[match["name"]] + ("" if value is None else f"={_of_flag(value)}")

    def is_first(match):
        before, after = text[: match.start()], text[match.end() :]
        return before in ("", "error: ") and after.startswith(" must ")

    return re.sub(rf"{start}(?:=(?P<value>{_OF_PYTHON})|(?![\w=/|]|\.\w))", flag, text)


def _of_flag(value):
    """Returns a literal of Python as the value of a flag."""
    words = {"None": "none", "True": "true", "False": "false"}
    if value.startswith("("):
        sides = value.strip("() ,").replace(" ", "").split(",")
        return ",".join(dict.fromkeys(sides) if len(sides) == 2 else sides)
    return words.get(value, value.strip("'\""))


def is_safe(text: str) -> bool:
    r"""Returns whether text has no control characters, also not those that reorder."""
    return text.isprintable() or not any(
        c in _REORDERING or unicodedata.category(c) in _UNSAFE_CATEGORIES for c in text
    )


def named(names: Sequence) -> str:
    """Joins the first ten names and counts the others."""
    shown = ", ".join(names[:10])
    return f"{shown} and {len(names) - 10:,} more" if len(names) > 10 else shown


def class_text(name: str) -> str:
    """Returns the name of a class, in quotes if it could be read as a count.

    Example:
        >>> class_text("daisy"), class_text("7")
        ('daisy', '"7"')
    """
    return f'"{name}"' if re.fullmatch(r"[-+]?\d[\d.,]*%?", name) else name


def counted(count: int, noun: str) -> str:
    """Returns a number and a noun, in the plural unless it is one.

    Example:
        >>> counted(1, "image"), counted(1200, "image")
        ('1 image', '1,200 images')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def plain_cell(text: str) -> str:
    """Returns a text as a cell of CSV that no spreadsheet takes for a formula.

    Spreadsheets compute cells that begin with one of `=+-@`, a tab or a line break. An
    apostrophe goes before those, and before texts that begin with apostrophes and such
    a character, so that `of_plain_cell` has every text back.
    """
    return f"'{text}" if text.lstrip("'").startswith(_FORMULA) else text


def of_plain_cell(cell: str) -> str:
    """Returns the text that `plain_cell` made a cell of."""
    is_marked = cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA)
    return cell[1:] if is_marked else cell


def shorten(text: str, most: int) -> str:
    """Returns a text cut to a width in letters; one of Chinese is as wide as two."""
    if width(text) <= most:
        return text
    end, left = 0, most - 1 - _width(text[0])
    while left >= 0:
        end += 1
        left -= _width(text[end])
    return f"{text[:end]}…"


def width(text: str) -> int:
    """Returns the width of a text in letters."""
    return sum(map(_width, text))


class PrintableError(Exception):
    """Base of this package's errors, whose messages are printable and short."""

    def __init__(self, *arguments):
        texts = (
            printable(a, lines=True) if isinstance(a, str) else a for a in arguments
        )
        super().__init__(*texts)


def _harmless(character, lines):
    return (
        character.isprintable()
        or character in _JOINERS
        or (lines and character == "\n")
        or (unicodedata.category(character) == "Zs")
    )


def _width(character):
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _spelled(character):
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = _MOST_OF_VALUE
