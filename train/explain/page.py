"""Renders the report as one HTML file that needs no other file and no network."""

import base64
import hashlib
import io

import numpy as np

from train.explain.figures import KINDS, available


def render(results, of_photos, photos, of_model):
    """Returns the report as HTML.

    `results` is the content of `report.json`, `of_photos` the `Figure` of all photos
    shown, `photos` the `PhotoInspection` of each.
    """
    import jinja2
    import PIL.Image

    loader = jinja2.PackageLoader("train.explain")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (
        # Part of the package, and not to be escaped.
        environment.filters["safe"](loader.get_source(environment, name)[0])
        for name in ("explanation.css", "explanation.js")
    )
    # The titles of the missing figures of photos by the reason.
    missing = {}
    for name, reason in results["missing"].items():
        if KINDS[name].of != "model":
            missing.setdefault(reason, []).append(KINDS[name].title)
    return environment.get_template("explanation.html").render(
        policy=_policy(script),
        style=style,
        script=script,
        results=results,
        missing=missing,
        of_photos=of_photos,
        photos=photos,
        viewer_of=_viewer,
        of_model=of_model,
        open_picture=PIL.Image.open,
        picture_of=PIL.Image.fromarray,
        uri=_uri,
    )


def _policy(script):
    """Lets the browser load nothing, and run nothing but the script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _viewer(inspected):
    """Returns the maps as bytes, in each layer the mean before those of the heads."""
    maps = available(lambda: inspected.maps)
    if maps is None:
        return None
    maps = np.concatenate([maps.mean(axis=1, keepdims=True), maps], axis=1)
    largest = maps.max(axis=(2, 3), keepdims=True)
    levels = np.round(255 * maps / np.maximum(largest, np.finfo("float32").tiny))
    layers, heads, rows, columns = maps.shape
    return {
        "maps": base64.b64encode(levels.astype("uint8").tobytes()).decode(),
        "layers": layers,
        "heads": heads - 1,
        "rows": rows,
        "columns": columns,
    }


def _uri(picture):
    buffer = io.BytesIO()
    # At this quality text stays sharp.
    picture.convert("RGB").save(buffer, "webp", quality=88)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
