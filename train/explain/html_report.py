"""The page of an explanation, one HTML file that needs no other."""

import base64
import dataclasses
import hashlib
import io

import numpy as np

_TEMPLATE, _STYLE, _SCRIPT = (f"explanation.{end}" for end in ("html", "css", "js"))
# Of the pictures, at which text stays sharp.
_QUALITY = 88
# The longer side of a photo, in the page's unit.
_REM = 26


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a kind of figure shows.

    Args:
        title: str.
        says: str, one or two sentences.
        source: str, where it comes from.
        wide: bool, whether it takes the width of the page.
    """

    title: str
    says: str
    source: str
    wide: bool = False


KINDS = {
    "attention": Kind(
        "What the model looks at",
        "Beside each photo is the same photo, bright where the model looks: the "
        "attention of all layers, followed back to the patches. Black gets the least.",
        "Paper, section 4.5, figure 6 and appendix D, attention maps.",
        wide=True,
    ),
    "rollout": Kind(
        "Attention rollout",
        "How much of each patch reaches {who} through all layers: heads averaged, the "
        "residual connection added, layers multiplied.",
        "Paper, appendix D, attention maps.",
    ),
    "gradient": Kind(
        "Attention for the class",
        "What the attention to each patch adds to the output for the class named in "
        "the figure: attention weights times their gradients, where that is positive.",
        "Chefer et al. 2021, arXiv 2103.15679.",
    ),
    "layers": Kind(
        "Attention by layer",
        "Where {who} looks in each layer, on average of its heads. Each map has "
        "its own scale.",
        "Paper, section 4.5.",
        wide=True,
    ),
    "heads": Kind(
        "Attention by head",
        "Where {who} looks in every head of every layer: a row is a layer, a column a "
        "head. Each map has its own scale.",
        "Paper, section 4.5.",
        wide=True,
    ),
    "features": Kind(
        "Patch features",
        "Patches of like colour have like features after the last layer: red, green "
        "and blue are the first three principal components.",
        "As in Oquab et al. 2023, arXiv 2304.07193, figure 1.",
    ),
    "figure_7": Kind(
        "The paper's figure 7",
        "What the model has learned: the filters that read a patch, how alike the "
        "position embeddings are, and how far the heads look.",
        "Paper, section 4.5 and figure 7.",
        wide=True,
    ),
    "filters": Kind(
        "Embedding filters",
        "The first principal components of the filters that read the image, with the "
        "share of the variance of each. A trained model's look like smooth basis "
        "functions for the fine structure of a patch.",
        "Paper, section 4.5 and figure 7, left.",
    ),
    "position_similarity": Kind(
        "Position embeddings",
        "Each tile is a patch: how alike its position embedding is to that of every "
        "other one. In a trained model near patches are alike, and those of the same "
        "row or column.",
        "Paper, section 4.5 and figure 7, centre.",
    ),
    "attention_distance": Kind(
        "Attention distance",
        "How far each head looks on average, in pixels, over all photos. Some heads "
        "see far in the first layers already; with depth most do.",
        "Paper, section 4.5, figure 7, right, and appendix D, attention distance.",
    ),
}

_OF_PHOTOS = ("attention", "rollout", "gradient", "layers", "heads", "features")


def page(results, *, of_all, looks, of_model):
    """Returns the page of an explanation.

    Args:
        results: dict, what `report.json` holds.
        of_all: `train.explain.book.Drawn` of all photos that are shown.
        looks: sequence of `train.explain.looks.Look`, one a photo that is shown.
        of_model: sequence of `train.explain.book.Drawn`.

    Returns:
        str, HTML.
    """
    import jinja2

    loader = jinja2.PackageLoader("train.explain")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (
        # Ours, and so no text to escape.
        environment.filters["safe"](loader.get_source(environment, name)[0])
        for name in (_STYLE, _SCRIPT)
    )
    return environment.get_template(_TEMPLATE).render(
        policy=_policy(script),
        style=style,
        script=script,
        results=results,
        facts=_facts(results, len(looks)),
        notes=list(_notes(results)),
        of_all=_item(of_all, results),
        photos=[_photo(look, results) for look in looks],
        of_model=[_item(drawn, results) for drawn in of_model],
        rows=_rows(results),
    )


def _policy(script):
    """Lets the browser load nothing, and run nothing but the script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _facts(results, shown):
    """What stands below the title, pairs of a name and a value."""
    height, width, channels = results["image_shape"]
    yield "Images", f"{height} × {width}{', gray' if channels == 1 else ''}"
    if "patches" in results:
        yield "Patches", " × ".join(map(str, results["patches"]))
        yield "Layers", results["layers"]
    yield "Parameters", f"{results['parameters']:,}"
    count = len(results["photos"])
    yield "Photos", f"{count}, {shown} shown" if shown < count else count
    yield "Prepared", results["preparation"]


def _notes(results):
    """What a reader should know first."""
    if results["why_no_class_names"]:
        yield f"Classes have numbers for names here. {results['why_no_class_names']}"
    if results["why_no_predictions"]:
        yield f"There are no predictions. {results['why_no_predictions']}"
    # The same reason for every photo is told once.
    kinds = {}
    for kind, reason in results["missing"].items():
        if kind in _OF_PHOTOS:
            kinds.setdefault(reason, []).append(KINDS[kind].title)
    for reason, titles in kinds.items():
        yield f"Not for this model: {', '.join(titles)}. {reason}"


def _item(drawn, results, photo=None):
    """A figure as the template takes it."""
    kind = KINDS[drawn.kind]
    item = {
        "id": drawn.name,
        "name": drawn.name,
        "title": kind.title,
        "says": kind.says.format(who=results["who_looks"]),
        "source": kind.source,
        "wide": kind.wide,
        "why_not": drawn.why_not,
    }
    if drawn.picture is None:
        return item
    import PIL.Image

    with PIL.Image.open(drawn.picture) as picture:
        # Pixels of screens and printers are smaller than those of the page.
        width, height = (round(side / 1.35) for side in picture.size)
        uri = _uri(picture.convert("RGB"), "webp")
    alt = kind.title if photo is None else f"{kind.title}: {photo.name}"
    return item | {"uri": uri, "width": width, "height": height, "alt": alt}


def _photo(look, results):
    """A photo and its figures as the template takes them."""
    import PIL.Image

    photo = look.photo
    height, width, _ = photo.picture.shape
    return {
        "id": f"photo-{photo.number}",
        "name": photo.name,
        "predictions": _bars(results["photos"][photo.place]["predictions"]),
        "uri": _uri(PIL.Image.fromarray(photo.picture), "webp"),
        "width": width,
        "height": height,
        "rem": round(_REM * width / max(width, height), 2),
        "viewer": _viewer(look),
        "figures": [
            _item(drawn, results, photo)
            for drawn in look.figures
            if drawn.why_not is None
        ],
    }


def _bars(predictions):
    return [
        {
            "name": name,
            "percent": f"{probability:.1%}",
            "width": f"{100 * probability:.2f}",
        }
        for _, name, probability in predictions or ()
    ]


def _viewer(look):
    """The attention maps in bytes, of each layer the mean before those of the heads."""
    if (maps := look.maps) is None:
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


def _rows(results):
    return [
        {"photo": photo["name"], **_bars(photo["predictions"])[0]}
        for photo in results["photos"]
        if photo["predictions"]
    ]


def _uri(picture, kind):
    buffer = io.BytesIO()
    picture.save(buffer, kind, quality=_QUALITY)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind};base64,{data}"
