"""Makes the notebooks of this folder from the tutorials in docs/tutorials.

  python colab/build.py

A page's ```python blocks become cells. A ```console block is one command, which
becomes a cell that shows the command's output and stops the notebook where it fails.
Links to other pages become links to the repository, whose address is `url` in
setup.cfg.
"""

import configparser
import os
import pathlib
import re
import sys

import jupytext
import nbformat

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "tutorials"
NOTEBOOKS = ROOT / "colab"
# Of these Colab starts the runtime with a GPU.
TRAINING = {"choose_checkpoint", "finetune", "pretrain"}


class PageError(ValueError):
    """A page that cannot become a notebook."""


def repository():
    """Returns the address of the repository."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config["metadata"]["url"].rstrip("/")


def badge(name):
    """Returns the line of a page that opens its notebook in Colab.

    Args:
        name: str, of the page, without `.md`.
    """
    colab = "https://colab.research.google.com"
    address = repository().replace("https://github.com", f"{colab}/github")
    return (
        f"[![Open in Colab]({colab}/assets/colab-badge.svg)]"
        f"({address}/blob/main/colab/{name}.ipynb)"
    )


def notebook(page):
    """Returns the notebook of a page, as the text of its file.

    Args:
        page: `pathlib.Path` of the Markdown file.

    Raises:
        PageError: the page lacks its badge, or has a console block of anything but one
            command.
    """
    text = page.read_text(encoding="utf-8")
    if badge(page.stem) not in text:
        raise PageError(
            f"{page.name} lacks its badge: put this below the title:\n"
            f"{badge(page.stem)}"
        )
    text = re.sub(
        r"^```console\n(.*?)^```$",
        lambda match: _cell(match, page),
        text,
        flags=re.M | re.S,
    )
    text = re.sub(r"\]\((?![a-z]+:|#)(.+?)\)", lambda match: _link(match, page), text)
    made = jupytext.reads(text, fmt="md")
    for number, cell in enumerate(made.cells, start=1):
        cell["id"] = f"cell-{number:02}"
        if cell.cell_type == "code":
            cell |= {"execution_count": None, "outputs": []}
    made.metadata = nbformat.from_dict(
        {
            "colab": {
                "name": f"{page.stem}.ipynb",
                "provenance": [],
                "toc_visible": True,
            },
            "kernelspec": {"display_name": "Python 3", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    if page.stem in TRAINING:
        made.metadata["accelerator"] = "GPU"
    nbformat.validate(made)
    return nbformat.writes(made, version=4) + "\n"


def _cell(match, page):
    command = match[1]
    if not command.startswith("$ ") or "\n$ " in command:
        raise PageError(
            f"A console block of {page.name} is not one command behind '$ ', which is "
            f"what becomes a cell:\n{command}"
        )
    return (
        f"```python\n!{command[2:]}"
        'assert _exit_code == 0, "The command failed: its message is above."\n```'
    )


def _link(match, page):
    target, mark, heading = match[1].partition("#")
    path = pathlib.Path(os.path.normpath(page.parent / target))
    place = path.relative_to(ROOT).as_posix()
    return f"]({repository()}/blob/main/{place}{mark}{heading})"


def main():
    """Writes the notebooks that are not as their pages say."""
    changed = 0
    for page in sorted(PAGES.glob("*.md")):
        path = NOTEBOOKS / f"{page.stem}.ipynb"
        try:
            made = notebook(page)
        except PageError as error:
            sys.exit(f"error: {error}")
        if not path.exists() or path.read_text(encoding="utf-8") != made:
            path.write_text(made, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
            changed += 1
    if not changed:
        print("all notebooks are as their pages say")


if __name__ == "__main__":
    main()
