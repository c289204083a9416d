"""Report and pictures of masked patch prediction."""

import json

import numpy as np

from train.common.files import whole_file
from train.masked_patches.patches import LEVELS
from train.reports import markdown
from train.reports.figures import draw_learning_curve, write_image_table
from train.reports.markdown import flat, result_text
from train.reports.report import about_curve

# Rows of the table by the prefix of the names of their results.
_ROWS = {
    "": "the model",
    "masked_": "the model, patches replaced by [mask]",
    "swapped_": "the model, patches replaced by another",
    "kept_": "the model, patches kept as they are, which it sees",
    "neighbours_": "mean colour of the neighbours that are not corrupted",
    "constant_": "chance: each colour as frequent as in training",
    "uniform_": "chance: all 512 colours alike",
}


def write_report(directory, *, splits, settings, results, history):
    """Writes `learning_curve.png`, `report.md` and last `report.json`, each whole."""
    page = _page(directory, splits, settings, results)
    report = json.dumps(results | {"config": settings}, indent=2, allow_nan=False)
    draw_learning_curve(
        directory.path / "learning_curve.png", history, results["loss_function"]
    )
    for path, text in ((directory.report, page), (directory.results, f"{report}\n")):
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _page(directory, splits, settings, results):
    title = f"Masked patch prediction on {settings['dataset']}"
    others = [name for name in results if not name.startswith((*splits, "uniform_"))]
    parts = [
        f"# {markdown.escape(title)}",
        *(_headline(split, results) for split in splits),
        markdown.code(results["command"]),
        "## Loss and accuracy, beside chance",
        "Cross-entropy in nats and the share of colours predicted correctly, over the "
        f"{results['corrupted_patches']} of {results['patches']} patches of each image "
        "that are corrupted.",
        _table(splits, results),
        "## Run",
        markdown.table(
            ("Result", "Value"),
            [
                (name, result_text(name, results[name]))
                for name in others
                if name != "command"
            ],
        ),
        "## Settings",
        markdown.table(("Setting", "Value"), flat(settings)),
        "## Learning curve",
        about_curve(results),
        markdown.embedded("learning_curve.png"),
        "## Masked and predicted",
        markdown.embedded(directory.predictions.name),
    ]
    return "\n\n".join(parts) + "\n"


def _headline(split, results):
    loss, chance = results[f"{split}_loss"], results[f"{split}_constant_loss"]
    low, accuracy = results[f"{split}_constant_accuracy"], results[f"{split}_accuracy"]
    return (
        f"**{split.capitalize()} loss {loss:.3f}**, {abs(chance - loss):.3f} "
        f"{'below' if loss < chance else 'above'} the {chance:.3f} of chance; accuracy "
        f"{accuracy:.2%}, by chance {low:.2%}; {results[f'{split}_examples']:,} images."
    )


def _table(splits, results):
    columns = [(split, kind) for split in splits for kind in ("loss", "accuracy")]
    rows = []
    for start, name in _ROWS.items():
        cells = []
        for split, kind in columns:
            value = results.get(f"{split}_{start}{kind}", results.get(f"{start}{kind}"))
            cells.append("" if value is None else result_text(kind, value))
        if any(cells):
            rows.append((name, *cells))
    header = ["", *(f"{split} {kind}" for split, kind in columns)]
    return markdown.table(header, rows)


def write_picture(path, inputs, guesses, colours, grid_size):
    """Draws images, their corruption, and the predicted and true colours.

    Args:
        path: PNG file to write, in an existing directory.
        inputs: dict of arrays, as `Corruption.finish` makes them.
        guesses: predicted classes of colours, integers (images, count).
        colours: the true ones, integers (images, count).
        grid_size: (rows, columns) of the patches.
    """
    images = inputs["images"]
    patches = _patches(images, grid_size)
    gray = np.zeros_like(patches[:, :1])
    everything = np.concatenate([patches, gray], axis=1)
    sources = inputs["sources"][:, :, None, None, None]
    seen = np.take_along_axis(everything, sources, axis=1)
    means = np.broadcast_to(patches.mean(axis=(2, 3), keepdims=True), patches.shape)
    columns = {
        "image": images,
        "corrupted, [mask] in gray": _images(seen, grid_size),
    }
    for name, classes in (("predicted", guesses), ("mean colours", colours)):
        filled = means.copy()
        places = inputs["places"][:, :, None, None, None]
        values = np.broadcast_to(
            _middles(classes)[:, :, None, None], (*classes.shape, *patches.shape[2:])
        )
        np.put_along_axis(filled, places, values, axis=1)
        columns[name] = _images(filled, grid_size)
    write_image_table(path, columns)


def _middles(classes):
    """Returns the colours in the middle of the levels, in [-1, 1]."""
    levels = np.stack(np.unravel_index(classes, (LEVELS,) * 3), axis=-1)
    return (2 * levels + 1) / LEVELS - 1


def _patches(images, grid_size):
    rows, columns = grid_size
    count, height, width, channels = images.shape
    cut = images.reshape(
        count, rows, height // rows, columns, width // columns, channels
    ).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(count, rows * columns, *cut.shape[3:])


def _images(patches, grid_size):
    count, _, height, width, channels = patches.shape
    rows, columns = grid_size
    grid = patches.reshape(count, rows, columns, height, width, channels)
    grid = grid.transpose(0, 1, 3, 2, 4, 5)
    return grid.reshape(count, rows * height, columns * width, channels)
