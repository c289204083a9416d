"""Markdown pages from Jinja templates, with all other text escaped."""

import pathlib
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zoo.common.safe_text import printable

# The most rows of a table of classes.
TABLE_ROWS = 100


class Block(str):
    """Markdown, which neither templates nor tables escape."""

    __slots__ = ()


def render(template: pathlib.Path, **values: Any) -> str:
    """Renders the template at a path; printed values are escaped, but no `Block`."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        finalize=_escape_unless_block,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    functions = (table, code, embedded, result_text, flat)
    environment.globals |= {function.__name__: function for function in functions}
    environment.filters |= {"percent": "{:.2%}".format, "count": "{:,}".format}
    return environment.get_template(template.name).render(values)


def table(header: Sequence[object], rows: Iterable[Iterable[object]]) -> Block:
    """Returns a table; `header` and each of the rows are sequences of cells."""
    lines = [header, ["---"] * len(header), *rows]
    cells = (map(_escape_unless_block, line) for line in lines)
    return Block("\n".join("| " + " | ".join(line) + " |" for line in cells))


def _escape_unless_block(value):
    return value if isinstance(value, Block) else escape(str(value))


def escape(text: str) -> Block:
    """Returns text without its meaning in Markdown, in tables too."""
    text = printable(" ".join(text.split()))
    text = re.sub(r"([\\`*|<>\[\]&$~#])", r"\\\1", text)
    # An underscore between letters or digits is not emphasis.
    return Block(re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text))


def code(text: object, language: str = "sh") -> Block:
    """Returns a code block, whose fence is longer than any in the text."""
    text = printable(str(text).strip(), most=10_000, lines=True)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Block(f"{fence}{language}\n{text}\n{fence}")


def embedded(name: str) -> Block:
    """Returns a picture in the folder of the page."""
    caption = escape(pathlib.Path(name).stem.replace("_", " "))
    return Block(f"![{caption}]({urllib.parse.quote(name)})")


def result_text(name: str, value: object) -> str:
    """Returns a result as text: shares, which are known by name, in percent."""
    if isinstance(value, float):
        if any(key in name for key in ("accuracy", "_macro_", "calibration_error")):
            return f"{value:.2%}"
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def flat(settings: dict, prefix: str = "") -> Iterator:
    """Yields pairs of name and value; the names of nested dicts have dots."""
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
