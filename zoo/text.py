"""Foreign text that is safe to print: no control characters, no endless lines."""

from __future__ import annotations

import reprlib
import unicodedata

# Of an error message; of one value within it.
MOST_OF_MESSAGE = 2000
MOST_OF_VALUE = 100
# The joiners within words and emoji, and the marks that names in Hebrew and Arabic have
# beside digits and brackets: each is a letter without width, and turns no others.
_JOINERS = "\u200c\u200d\u061c\u200e\u200f"
# What reorders the text that follows, up to the end of the line.
_REORDERING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_UNSAFE_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")


def printable(text: str, most: int = MOST_OF_MESSAGE, lines: bool = False) -> str:
    r"""Returns text in which what a terminal would obey is spelled out.

    Args:
        text: str, from wherever.
        most: int, characters; of a longer text the middle is left out.
        lines: bool, whether line breaks stay.

    Returns:
        str of printable characters.

    Example:
        >>> from zoo import text
        >>> print(text.printable("a\x1b[2Jb"))
        a\x1b[2Jb
        >>> text.printable(100 * "long ", 30)
        'long long lon [...] long long '
    """
    end = most // 3
    start = most - end - len(" [...] ")
    if len(text) > most:
        text = f"{text[:start]} [...] {text[-end:]}"
    if text.isprintable():
        return text
    text = "".join(c if _harmless(c, lines) else _spelled(c) for c in text)
    # Each may have become ten.
    return text if len(text) <= most else f"{text[:start]} [...] {text[-end:]}"


def brief(value: object) -> str:
    """Returns the `repr` of a value, or the beginning of a long one.

    Example:
        >>> from zoo import text
        >>> len(text.brief(10**6 * "a"))
        100
    """
    return printable(_repr.repr(value), MOST_OF_VALUE)


def is_safe(text: str) -> bool:
    r"""Says whether text has neither control characters nor halves of others.

    Those that reorder the text that follows are among the former.

    Example:
        >>> from zoo import text
        >>> text.is_safe("Öl, 👩‍🌾"), text.is_safe("a\nb"), text.is_safe("a\u202eb")
        (True, False, False)
    """
    return text.isprintable() or not any(
        c in _REORDERING or unicodedata.category(c) in _UNSAFE_CATEGORIES for c in text
    )


class PrintableError(Exception):
    """Base of this package's errors, whose messages are printable and short.

    Example:
        >>> from zoo import CheckpointError
        >>> len(str(CheckpointError(10**6 * "a")))
        2000
    """

    def __init__(self, *arguments):
        super().__init__(
            *(
                printable(text, lines=True) if isinstance(text, str) else text
                for text in arguments
            )
        )


def _harmless(character, lines):
    return (
        character.isprintable()
        or character in _JOINERS
        or (lines and character == "\n")
        or (unicodedata.category(character) == "Zs")
    )


def _spelled(character):
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = MOST_OF_VALUE
