"""The fenced blocks of a page, and the commands of a console block."""

import dataclasses
import pathlib
import re
import shlex
import textwrap

ROOT = pathlib.Path(__file__).parents[2]
LANGUAGES = ("python", "console", "text", "csv", "ini", "json")
# Sphinx reads these, which are no code.
DIRECTIVES = ("{toctree}", "{eval-rst}")
BLOCK = re.compile(r"(?ms)^( *)(`{3,}|~{3,})([^\n]*)\n(.*?)^\1\2$")


class PageError(Exception):
    """A page is not written as it must be; the message says where."""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: pathlib.Path
    line: int
    language: str
    text: str

    def at(self, line=0):
        """Where it is, for a message: `line` counts within the block."""
        return f"{self.page.relative_to(ROOT)}:{self.line + line}"


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of a console block: what stands before it, and its words.

    `rest` is what follows it in the block.
    """

    place: str
    text: str
    environment: dict
    words: list
    rest: str


def pages():
    """All pages whose blocks are executed here."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    # The tutorials are notebooks, which have a test of their own.
    others = {ROOT / "docs" / "tutorials", ROOT / "docs" / "_build"}
    return [page for page in found if not others & {*page.parents}]


def name(page):
    """What a page is called in a test."""
    return str(page.relative_to(ROOT))


def blocks(page):
    """Returns the blocks of a page in order."""
    whole, found = page.read_text(), []
    for block in BLOCK.finditer(whole):
        _, _, language, text = block.groups()
        line = whole.count("\n", 0, block.start()) + 1
        found.append(Block(page, line, language.strip(), textwrap.dedent(text)))
    left = BLOCK.sub("", whole)
    if re.search("(?m)^ *(```|~~~)", left):
        raise PageError(f"{name(page)}: a block has no end")
    return [block for block in found if block.language not in DIRECTIVES]


def commands(block):
    """Returns the commands of a console block."""
    found = []
    lines = re.sub(r" *\\\n *", " ", block.text).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("$ "):
            raise PageError(
                f"{block.at(number)}: {line!r} is no command: begin it with '$ ', or "
                "put what is printed into a block of text"
            )
        words, environment = shlex.split(line[2:], comments=True), {}
        while re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        rest = "\n".join(lines[number:])
        found.append(Command(block.at(number), line[2:], environment, words, rest))
    return found
