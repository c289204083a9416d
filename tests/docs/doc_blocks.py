"""The fenced blocks of a page, and the commands of a console block."""

import dataclasses
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).parents[2]
LANGUAGES = ("python", "console", "text", "csv", "ini", "json")
# What Sphinx reads is no code.
DIRECTIVES = ("{toctree}", "{eval-rst}")
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>.*)$")


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
    # Those are notebooks, which have a test of their own.
    tutorials = ROOT / "docs" / "tutorials"
    built = ROOT / "docs" / "_build"
    return [page for page in found if not {tutorials, built} & {*page.parents}]


def name(page):
    """What a page is called in a test."""
    return str(page.relative_to(ROOT))


def is_executable(page):
    """Whether a page has code or commands."""
    return any(block.language in ("python", "console") for block in blocks(page))


def blocks(page):
    """Returns the blocks of a page in order."""
    found = []
    lines = page.read_text().splitlines()
    opened = None
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened = fence
                begin = number
        elif fence and not fence["language"] and fence["fence"] == opened["fence"]:
            cut = len(opened["indent"])
            text = "".join(f"{line[cut:]}\n" for line in lines[begin : number - 1])
            found.append(Block(page, begin, opened["language"].strip(), text))
            opened = None
    if opened:
        raise PageError(f"{page.relative_to(ROOT)}:{begin}: the block has no end")
    return [block for block in found if block.language not in DIRECTIVES]


def commands(block):
    """Returns the commands of a console block."""
    found = []
    lines = block.text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line.startswith("$ "):
            raise PageError(
                f"{block.at(number)}: {line!r} is no command: begin it with '$ ', or "
                "put what is printed into a block of text"
            )
        place, text = block.at(number), line[2:]
        while text.endswith("\\") and number < len(lines):
            text = text[:-1].rstrip() + " " + lines[number].strip()
            number += 1
        words = shlex.split(text, comments=True)
        environment = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        rest = "\n".join(lines[number:])
        found.append(Command(place, text, environment, words, rest))
    return found
