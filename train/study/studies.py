"""Studies: several runs of a recipe that differ in one thing, and their comparison."""

import os
import pathlib

from train.common import markdown
from train.common.errors import RunError
from train.common.files import read_json, write_json, write_text
from train.data.options import DEFAULTS, DataOptions
from train.engine import reproducibility
from train.engine.devices import start
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.reports import figures
from train.study import kinds
from train.study.options import Options

_TEMPLATE = pathlib.Path(__file__).with_name("page.md.jinja")


def run(
    study: str,
    recipe: Recipe,
    options: Options | None = None,
    *,
    run_dir: str | os.PathLike,
    data_options: DataOptions = DEFAULTS,
    devices: Devices | None = None,
    command: str = "",
) -> dict:
    """Makes the runs of a study that are missing, and writes table and plot.

    Keras's precision and the random states of Python and NumPy are restored
    afterwards; the rest of Keras's session, with the names it gives to layers, is new.

    The arguments are the flags of `python -m train.study`; `recipe` is what the runs
    have in common, and the last three are those of `train.run.training.run`. A study
    that is called again goes on.

    Returns:
        Dict as in `study.json`, with `page`, the path of `study.md`.

    Raises:
        RunError: a run failed; where others did not, they are in the table. Or there
            are several hosts.

    Example:
        >>> recipe = kinds.recipe_for("positions", "digits").smoke()
        >>> run("positions", recipe, run_dir="runs/positions")  # doctest: +SKIP
    """
    options, kind = options or Options(), kinds.named(study)
    # The other hosts would find the directory locked.
    if devices is not None and devices.has_hosts:
        raise RunError(
            "A study is made by one process, and this is one of several: start it "
            "alone, or give its runs one by one to keras-vit finetune."
        )
    directory = RunDirectory(run_dir)
    # The runs begin with new Keras sessions, and their models are loaded after them.
    with directory.locked(), reproducibility.preserved_state():
        _check(directory, study, recipe, options)
        settings = {
            "run_dir": directory.path,
            "data_options": data_options,
            "devices": devices or start("one"),
            "command": command,
        }
        runs, results = kind.measure(recipe, options, settings)
        results = {
            "study": study,
            "dataset": recipe.dataset,
            "command": command,
            "shots": options.shots,
            **results,
            "failed": runs.failed,
        }
        figure = figures.new_figure(8, 4.5)
        kind.draw(figure, results)
        figures.style_axes(figure.axes, grid=True)
        figure.suptitle(f"{recipe.dataset}: {kind.TITLE}", parse_math=False)
        figures.save(figure, directory.path / "study.png")
        rows = results.get("chosen") or results["rows"]
        text = markdown.render(
            _TEMPLATE,
            **results,
            title=kind.TITLE,
            tables=list(kind.tables(results)),
            seeds=max((len(row["runs"]) for row in rows), default=0),
            link=markdown.Block,
        )
        page = directory.path / "study.md"
        write_text(page, text)
        write_json(directory.path / "study.json", results)
    if runs.failed:
        label, message = next(iter(runs.failed.items()))
        raise RunError(
            f"{len(runs.failed)} of {runs.total} runs failed; {page} has the others. "
            f"The same command tries those again. {label}: {message}"
        )
    return {**results, "page": str(page)}


def _check(directory, study, recipe, options):
    written = directory.path / "study.json"
    if written.exists():
        remedy = "remove it, the runs beside it are kept"
        other = read_json(written, remedy, lambda content: content["study"])
        if other != study:
            raise RunError(
                f"{directory.path} holds the study {other}: pass another --run_dir "
                f"for {study}."
            )
    kinds.check(study, recipe, options)
