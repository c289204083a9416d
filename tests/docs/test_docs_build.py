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


class Markdown:
    """The links and the anchors of a page as GitHub shows it."""

    def __init__(self, path):
        text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text())
        self.links = set(re.findall(r"\]\(([^)\s]+)\)", text))
        slugs = [slug(heading) for heading in re.findall(r"(?m)^#+ (.*)$", text)]
        before = [slugs[:place].count(name) for place, name in enumerate(slugs)]
        self.anchors = {
            f"{name}-{count}" if count else name
            for name, count in zip(slugs, before, strict=True)
        }


def slug(heading):
    """Returns the anchor that GitHub gives a heading."""
    shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


def leads_somewhere(link, path, pages):
    """Says whether a link of a page resolves; other sites are not looked at."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = path
    if parts.path:
        target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
    if not target.exists():
        return False
    if not parts.fragment or target.suffix != ".md":
        return True
    return parts.fragment in (pages.get(target) or Markdown(target)).anchors


def entries(folder):
    """Returns the names that the reference has, from Sphinx's inventory."""
    _, _, _, _, packed = (folder / "objects.inv").read_bytes().split(b"\n", 4)
    return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}


@pytest.mark.slow
def test_build_has_no_warning(build):
    (code, output), _ = build
    assert code == 0, output


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_reference_has_every_public_name(build, package):
    _, folder = build
    names = importlib.import_module(package).__all__
    assert {f"{package}.{name}" for name in names} <= entries(folder)


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
    pages = {path.resolve(): Markdown(path) for path in SOURCES}
    broken = [
        f"{path.name}: {link}"
        for path, page in pages.items()
        for link in sorted(page.links)
        if not leads_somewhere(link, path, pages)
    ]
    assert broken == []
