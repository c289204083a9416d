"""Renders the report as one HTML file that needs no other file and no network."""

import base64

import numpy as np

from keras_vit.explain.figures.overlays import heat_colors, relative
from train.explain.figures import KINDS, available
from train.reports import html


def render(results: dict, of_photos: list, photos: list, of_model: list) -> str:
    """Returns the report as HTML.

    `results` is the content of `report.json`, `of_photos` the `Figure`s of all
    photos shown, `photos` the `PhotoInspection` of each.
    """
    import PIL.Image

    # Collect the titles of missing figures of photos by their reason.
    missing = {}
    for name, reason in results["missing"].items():
        if KINDS[name].of != "model":
            missing.setdefault(reason, []).append(KINDS[name].title)
    return html.render(
        "train.explain",
        "explanation",
        results=results,
        missing=missing,
        of_photos=of_photos,
        photos=photos,
        viewer_of=_viewer,
        colors=_bytes(heat_colors().colors),
        of_model=of_model,
        open_picture=PIL.Image.open,
        picture_of=PIL.Image.fromarray,
    )


def _viewer(inspected):
    """Returns the maps as bytes, in each layer the mean before those of the heads.

    The map of the answer is empty where there is none.
    """
    maps = available(lambda: inspected.inspection.maps)
    if maps is None:
        return None
    maps = np.concatenate([maps.mean(axis=1, keepdims=True), maps], axis=1)
    layers, heads, rows, columns = maps.shape
    answer = available(lambda: inspected.class_map)
    return {
        "answer": "" if answer is None else _bytes(relative(answer)),
        "maps": _bytes(relative(maps)),
        "layers": layers,
        "heads": heads - 1,
        "rows": rows,
        "columns": columns,
    }


def _bytes(shares):
    levels = np.round(255 * shares).astype("uint8")
    return base64.b64encode(levels.tobytes()).decode()
