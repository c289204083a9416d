"""Pieces of Markdown pages."""

import pathlib
import re
import urllib.parse

from zoo.text import printable


def table(header, rows):
    """Returns a table.

    Args:
        header: sequence of str.
        rows: iterable of sequences as long, of anything.

    Returns:
        str.

    Example:

    >>> table(("Result", "Value"), [("steps", 10)]).splitlines()[2]
    '| steps | 10 |'
    """
    lines = [header, ["---"] * len(header)]
    lines += [[escape(str(cell)) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape(text):
    r"""Returns text that means itself in Markdown, inside tables too.

    Example:

    >>> print(escape("a|b"))
    a\|b
    """
    text = printable(" ".join(text.split()))
    text = re.sub(r"([\\`*|<>\[\]&$~#])", r"\\\1", text)
    # An underscore between letters or digits is no emphasis.
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)


def code(text, language="sh"):
    """Returns a block of code, from which no text leads out.

    Example:

    >>> print(code("ls"))
    ```sh
    ls
    ```
    """
    text = printable(str(text).strip(), most=10_000, lines=True)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def embedded(name):
    """Returns a picture that lies beside the page.

    Example:

    >>> embedded("learning_curve.png")
    '![learning curve](learning_curve.png)'
    """
    caption = escape(pathlib.Path(name).stem.replace("_", " "))
    return f"![{caption}]({urllib.parse.quote(name)})"
