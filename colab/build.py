"""Makes the notebooks of this folder from the tutorials in docs/tutorials.

  python colab/build.py

A page's ```python blocks become cells. A ```console block is one command, which
becomes a cell that shows the command's output and stops the notebook where it fails.
Links to other pages lead into the clone that the notebook lies in: the project has no
public address.
"""

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
TRAINING = {"choose_checkpoint", "finetune", "own_photos", "pretrain"}


class PageError(ValueError):
    """A page that cannot become a notebook."""


def notebook(page):
    """Returns the notebook of a page, as the text of its file.

    Args:
        page: `pathlib.Path` of the Markdown file.

    Raises:
        PageError: the page has a console block of anything but one command.
    """
    text = page.read_text(encoding="utf-8")
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
    place = pathlib.Path(os.path.relpath(page.parent / target, NOTEBOOKS)).as_posix()
    return f"]({place}{mark}{heading})"


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
