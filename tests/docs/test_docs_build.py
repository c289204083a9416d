"""The documentation builds without a warning, lacks no name, and its links resolve."""

import importlib
import pathlib
import re
import urllib.parse
import zlib

import pytest

from keras_vit_start import COMMANDS
from train import recipes
from train.recipes import pretraining

masking = pytest.importorskip("train.masked_patches.recipes")

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("keras_vit", "keras_vit.explain", "keras_vit.explain.figures", "zoo")
SOURCES = [ROOT / "README.md", *sorted(ROOT.glob("docs/[!_]*/**/*.md"))]
SOURCES += sorted(ROOT.glob("docs/*.md"))


@pytest.fixture(scope="module")
def build(forks, tmp_path_factory):
    """What the build of the documentation ended with and said, and its folder."""
    folder = tmp_path_factory.mktemp("docs")
    options = ["-W", "--keep-going", "-n", "-b", "html", "-d", folder / "doctrees"]
    ended = forks.run(["sphinx", *options, "docs", folder / "html"], ROOT, {})
    return ended, folder / "html"


def text_of(path):
    """Returns the text of a page without its blocks."""
    return re.sub(r"(?ms)^```.*?^```$", "", path.read_text())


def anchors_of(path):
    """Returns the anchors that GitHub gives the headings of a page."""
    found = set()
    for heading in re.findall(r"(?m)^#+ (.*)$", text_of(path)):
        shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        count = sum(re.fullmatch(rf"{slug}(-\d+)?", one) is not None for one in found)
        found.add(f"{slug}-{count}" if count else slug)
    return found


def leads_somewhere(link, path):
    """Says whether a link of a page resolves; other sites are not looked at."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = path
    if parts.path:
        target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
    if not parts.fragment or target.suffix != ".md":
        return target.exists()
    return target.exists() and parts.fragment in anchors_of(target)


def entries(folder):
    """Returns the names that the reference has, from Sphinx's inventory."""
    _, _, _, _, packed = (folder / "objects.inv").read_bytes().split(b"\n", 4)
    return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}


@pytest.mark.slow
def test_build_has_no_warning_and_every_public_name(build):
    (code, output), folder = build
    assert code == 0, output
    known = entries(folder)
    for package in PACKAGES:
        names = importlib.import_module(package).__all__
        assert {f"{package}.{name}" for name in names} <= known


@pytest.mark.slow
def test_reference_has_every_command_and_recipe(build):
    _, folder = build
    page = (folder / "reference" / "commands.html").read_text()
    shown = set(re.findall(r"\$ keras-vit ([\w ]+) --help", page))
    subcommands = re.findall(r"(?m)^    (\w+)  +\w", page)
    assert {"list", "info", "download"} <= set(subcommands)
    assert {*COMMANDS, *(f"zoo {name}" for name in subcommands)} == shown

    page = (folder / "reference" / "recipes.html").read_text()
    for package in (recipes, pretraining, masking):
        assert all(f">{name}<" in page for name in package.names())


def test_links_of_markdown_resolve_as_on_github():
    broken = [
        f"{path.name}: {link}"
        for path in SOURCES
        for link in sorted(set(re.findall(r"\]\(([^)\s]+)\)", text_of(path))))
        if not leads_somewhere(link, path)
    ]
    assert broken == []
