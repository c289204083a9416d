"""The files of a study: study.md with tables, study.png with a plot, study.json."""

import json
import pathlib

from train.common.errors import RunError
from train.common.files import write_text
from train.reports import figures, markdown
from train.study import kinds
from train.study.accuracies import has_few_shot

_TEMPLATE = pathlib.Path(__file__).with_name("page.md.jinja")


def claim(run_dir, study):
    """Raises `RunError` if a directory holds another study, or a damaged one."""
    path = pathlib.Path(run_dir).expanduser() / "study.json"
    if not path.exists():
        return
    try:
        other = json.loads(path.read_text(encoding="utf-8"))["study"]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise RunError(
            f"{path} is damaged ({error}): remove it, the runs beside it are kept."
        ) from error
    if other != study:
        raise RunError(
            f"{path.parent} holds the study {other}: pass another --run_dir for "
            f"{study}."
        )


def write(run_dir, found):
    """Writes the three files, each whole, and returns the path of the page.

    Args:
        run_dir: path of the study's directory.
        found: dict, the content of `study.json`.
    """
    folder = pathlib.Path(run_dir).expanduser()
    page = folder / "study.md"
    _draw(folder / "study.png", found)
    write_text(page, _page(found))
    text = json.dumps(found, indent=2, ensure_ascii=False)
    write_text(folder / "study.json", f"{text}\n")
    return page


def tables(found):
    """Returns the tables of a study, a list of str in Markdown."""
    return list(kinds.named(found["study"]).tables(found))


def _page(found):
    rows = found.get("chosen") or found["rows"]
    return markdown.render(
        _TEMPLATE,
        **found,
        title=kinds.named(found["study"]).TITLE,
        tables=tables(found),
        seeds=max((len(row["runs"]) for row in rows), default=0),
        has_few_shot=has_few_shot(found),
        labels=[
            label
            for row in (*found["rows"], *found.get("chosen", ()))
            for label in row["runs"]
        ],
        link=markdown.Block,
    )


def _draw(path, found):
    kind = kinds.named(found["study"])
    figure = figures.new_figure(8, 4.5)
    figures.style_axes(kind.draw(figure, found), grid=True)
    figure.suptitle(f"{found['dataset']}: {kind.TITLE}", parse_math=False)
    figures.save(figure, path)
