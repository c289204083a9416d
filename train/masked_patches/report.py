"""Report and pictures of masked patch prediction."""

import pathlib

import einops
import numpy as np

from train.common import markdown
from train.common.files import write_json, write_text
from train.common.markdown import result_text
from train.engine.metric_log import MetricLog
from train.masked_patches.patches import LEVELS
from train.models.run_directory import RunDirectory
from train.reports.contents import about_curve
from train.reports.figures import draw_learning_curve, write_image_table

_TEMPLATE = pathlib.Path(__file__).with_name("page.md.jinja")
# The table has a row for each prefix of results.
_ROWS = {
    "": "the model",
    "masked_": "the model, patches replaced by [mask]",
    "swapped_": "the model, patches replaced by another",
    "kept_": "the model, patches kept as they are, which it sees",
    "neighbours_": "mean colour of the neighbours that are not corrupted",
    "constant_": "chance: each colour as frequent as in training",
    "uniform_": "chance: all 512 colours alike",
}


def write_report(
    directory: RunDirectory,
    *,
    splits: list[str],
    settings: dict,
    results: dict,
    history: MetricLog,
) -> None:
    """Writes `learning_curve.png`, `report.md` and last `report.json`, each whole."""
    beside = (*splits, "uniform_", "command")
    others = [
        (name, result_text(name, value))
        for name, value in results.items()
        if not name.startswith(beside)
    ]
    page = markdown.render(
        _TEMPLATE,
        **results,
        headlines=[_headline(split, results) for split in splits],
        losses=_table(splits, results),
        others=others,
        settings=settings,
        curve=about_curve(results),
        predictions=directory.predictions.name,
    )
    curve = directory.path / "learning_curve.png"
    draw_learning_curve(curve, history, results["loss_function"])
    write_text(directory.report, page)
    write_json(directory.results, results | {"config": settings})


def _headline(split, results):
    loss, chance = results[f"{split}_loss"], results[f"{split}_constant_loss"]
    low, accuracy = results[f"{split}_constant_accuracy"], results[f"{split}_accuracy"]
    return markdown.Block(
        f"**{split.capitalize()} loss {loss:.3f}**, {abs(chance - loss):.3f} "
        f"{'below' if loss < chance else 'above'} the {chance:.3f} of chance; accuracy "
        f"{accuracy:.2%}, by chance {low:.2%}; {results[f'{split}_examples']:,} images."
    )


def _table(splits, results):
    columns = [(split, kind) for split in splits for kind in ("loss", "accuracy")]
    rows = []
    for start, name in _ROWS.items():
        # Chance of all colours alike is that of every split.
        values = [
            (kind, results.get(f"{split}_{start}{kind}", results.get(f"{start}{kind}")))
            for split, kind in columns
        ]
        cells = ["" if num is None else result_text(kind, num) for kind, num in values]
        if any(cells):
            rows.append((name, *cells))
    header = ["", *(f"{split} {kind}" for split, kind in columns)]
    return markdown.table(header, rows)


def write_picture(
    path: pathlib.Path,
    inputs: dict,
    guesses: np.ndarray,
    colours: np.ndarray,
    grid_size: tuple,
) -> None:
    """Draws images, their corruption, and the predicted and true colours, as PNG.

    `inputs` are those of `Corruption.finish`; `guesses` and `colours` are colour
    classes (images, count).
    """
    images, places = inputs["images"], inputs["places"]
    rows, columns = grid_size
    patches = einops.rearrange(
        images, "n (r h) (c w) d -> n (r c) h w d", r=rows, c=columns
    )

    def joined(patches: np.ndarray) -> np.ndarray:
        return einops.rearrange(patches, "n (r c) h w d -> n (r h) (c w) d", r=rows)

    with_gray = np.concatenate([patches, np.zeros_like(patches[:, :1])], axis=1)
    sources = inputs["sources"][:, :, None, None, None]
    corrupted = joined(np.take_along_axis(with_gray, sources, axis=1))
    table = {"image": images, "corrupted, [mask] in gray": corrupted}
    for name, classes in (("predicted", guesses), ("mean colours", colours)):
        means = patches.mean(axis=(2, 3))
        levels = np.stack(np.unravel_index(classes, (LEVELS,) * 3), axis=-1)
        # Take the colours in the middle of the levels, in [-1, 1].
        middles = (2 * levels + 1) / LEVELS - 1
        np.put_along_axis(means, places[..., None], middles, axis=1)
        table[name] = joined(np.broadcast_to(means[:, :, None, None], patches.shape))
    write_image_table(path, table)
