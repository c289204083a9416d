"""The figures of a report, each one function: what is computed, drawn and written."""

import dataclasses
import functools
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_vit import explain
from keras_vit.explain import figures as plots
from keras_vit.structure import num_registers, pooling_of
from train.explain.photos import Photo
from zoo.common.safe_text import class_text, shorten

_DOTS_PER_INCH = 130
# Leave this margin around a figure, in inches.
_MARGIN = 0.1
_SHARE = "share of the attention"
_RELEVANCE = "relevance, in units of the output"
_TITLE = 32


class Kind:
    """A kind of figure: a function below, whose docstring is its title and caption.

    The function takes an inspection and returns a `matplotlib.figure.Figure` and a dict
    of the arrays and strings behind it. It raises a ValueError with the reason where
    the model lacks what it shows. `of` is "photo", "photos" (all that are shown) or
    "model"; in the caption, `{who}` is what the model's output is computed from, and
    `{tokens}` the tokens whose attention in a layer is shown. `only` says of an
    inspection whether there is such a figure at all.
    """

    def __init__(self, draw, of, source, wide, only):
        self.draw, self.of, self.source, self.wide = draw, of, source, wide
        self.only = only
        self.name = draw.__name__
        # Python -OO leaves out docstrings.
        title, _, caption = (inspect.getdoc(draw) or self.name).partition("\n\n")
        self.title, self.caption = title.rstrip("."), " ".join(caption.split())


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the report; `why_not` is the reason where there is no picture."""

    kind: Kind
    name: str
    picture: pathlib.Path | None
    why_not: str | None = None


KINDS = {}


def _kind(of, source, wide=False, only=lambda inspected: True):
    def register(draw: Callable) -> Callable:
        KINDS[draw.__name__] = Kind(draw, of, source, wide, only)
        return draw

    return register


def write(
    folder: pathlib.Path, of: str, inspected: Any, photo: Photo | None = None
) -> list[Figure]:
    """Writes the figures of a photo, of all or of the model; returns `Figure`s."""
    kinds = [kind for kind in KINDS.values() if kind.of == of and kind.only(inspected)]
    return [_write(folder, kind, inspected, photo) for kind in kinds]


def _write(folder, kind, inspected, photo):
    name = kind.name if photo is None else f"{photo.file_name}-{kind.name}"
    try:
        figure, numbers = kind.draw(inspected)
    except ValueError as error:
        return Figure(kind, name, None, str(error))
    picture = folder / "figures" / f"{name}.png"
    plots.fit_alphabets(figure)
    # Compute the layout once for both files: it takes as long as drawing.
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    sheet = figure.get_tightbbox().padded(_MARGIN)
    for path in (picture, picture.with_suffix(".pdf")):
        figure.savefig(path, dpi=_DOTS_PER_INCH, bbox_inches=sheet)
    if photo is not None:
        numbers["photo"] = photo.name
    write_numbers(folder, name, numbers)
    return Figure(kind, name, picture)


def write_numbers(folder: pathlib.Path, name: str, numbers: dict[str, Any]) -> None:
    """Writes arrays, numbers and strings that `numpy.load` reads without pickle."""
    np.savez_compressed(folder / "numbers" / f"{name}.npz", **numbers)


def available(compute: Callable[[], Any]) -> Any:
    """Returns what a function computes, None where the model lacks it."""
    try:
        return compute()
    except ValueError:
        return None


def known(value: Any) -> Any:
    """Returns a value, or raises a ValueError where it is why there is none, a str."""
    if isinstance(value, str):
        raise ValueError(value)
    return value


class PhotoInspection:
    """What is computed once for all figures of a photo.

    `predictions` are the most likely classes, None without them. `target` is the number
    and name of the class whose gradient weights the attention, by default the most
    likely one, or the largest output of a model without classes. `inspection` is what
    one forward pass shows of the photo, or the reason why it shows none, a str.
    """

    figures: list

    def __init__(self, loaded, photo, predictions, target, inspection):
        self.model, self.name, self.photo = loaded.model, loaded.name, photo
        self.predictions, self.caption = predictions, photo.name
        self.target = target or (None, "the largest output")
        self._inspection = inspection
        if predictions is not None:
            number, name, probability = predictions[0]
            self.target = target or (number, name)
            self.caption = f"{class_text(name)} {probability:.0%}"

    @property
    def inspection(self) -> Any:
        return known(self._inspection)

    @functools.cached_property
    def class_map(self) -> np.ndarray:
        """float32 array (rows, columns), the attention for the target."""
        number, _ = self.target
        matrix, pooled = explain.gradient_attention(
            self.model, self.photo.image, number, return_pooling=True
        )
        grid, registers = explain.grid_size(self.model), num_registers(self.model)
        pooling = pooling_of(self.model) if pooled is None else pooled
        [relevance] = explain.patch_map(matrix, grid, pooling, registers)
        return relevance.astype("float32")


class ModelInspection:
    """A model with the names of the photos and their attention distance.

    The distance is float32 (layers, images, heads), or the reason why there is none, a
    str.
    """

    def __init__(self, loaded, photos, distance):
        self.model, self.name = loaded.model, loaded.name
        self.photos, self.distance = photos, distance

    @functools.cached_property
    def filters(self) -> Any:
        return explain.embedding_filters(self.model)

    @functools.cached_property
    def similarity(self) -> np.ndarray:
        return explain.position_embedding_similarity(self.model)


@_kind("photos", "Chefer et al. 2021, arXiv 2103.15679.", wide=True)
def answers(inspected: Sequence[PhotoInspection]) -> tuple:
    """The answers, and what they come from.

    Each photo with its most likely class, and over it the attention for the class: what
    the attention to each patch adds to the class's output. Each map has its own scale.
    """
    maps = np.stack([photo.class_map for photo in inspected])
    figure, numbers = _pairs(inspected, maps, "attention for the class")
    names = [photo.target[1] for photo in inspected]
    return figure, numbers | {"class_names": names, "unit": _RELEVANCE}


@_kind(
    "photos", "Paper, section 4.5, figure 6 and appendix D, attention maps.", wide=True
)
def attention(inspected: Sequence[PhotoInspection]) -> tuple:
    """Attention rollout of all photos.

    Over each photo is the attention of all layers, followed back to the patches,
    whatever the class. Each map has its own scale.
    """
    maps = np.stack([photo.inspection.rollout for photo in inspected])
    figure, numbers = _pairs(inspected, maps, "attention rollout")
    return figure, numbers | {"unit": _SHARE}


def _pairs(inspected, maps, subject):
    photos = [each.photo for each in inspected]
    pictures = [photo.picture for photo in photos]
    captions = [shorten(each.caption, _TITLE) for each in inspected]
    title = f"{inspected[0].name}: {subject}"
    figure = plots.draw_attention(pictures, maps, captions, title)
    return figure, {"maps": maps, "photos": [photo.name for photo in photos]}


@_kind("photo", "Chefer et al. 2021, arXiv 2103.15679.", wide=True)
def gradient(inspected: PhotoInspection) -> tuple:
    """Attention for the class.

    What the attention to each patch adds to the output for the class named in the
    figure: attention weights times their gradients, where that is positive.
    """
    _, name = inspected.target
    title = f"{inspected.name}: attention for {shorten(name, _TITLE)}"
    figure, numbers = _overlay(inspected, inspected.class_map, title, _RELEVANCE)
    return figure, numbers | {"class_name": name}


@_kind("photo", "Paper, appendix D, attention maps.")
def rollout(inspected: PhotoInspection) -> tuple:
    """Attention rollout.

    How much of each patch reaches {who} through all layers: heads averaged, the
    residual connection added, layers multiplied.
    """
    title = f"{inspected.name}: attention rollout"
    return _overlay(inspected, inspected.inspection.rollout, title, _SHARE)


@_kind(
    "photo",
    "Lee et al. 2018, arXiv 1810.00825, section 3.2.",
    only=lambda inspected: available(lambda: inspected.inspection.pooled) is not None,
)
def pooling(inspected: PhotoInspection) -> tuple:
    """Attention of the pooling.

    What {who} attends to among the tokens after the last layer, the mean of its heads.
    """
    heads = inspected.inspection.pooled
    title = f"{inspected.name}: attention of the pooling"
    figure, numbers = _overlay(inspected, heads.mean(axis=0), title, _SHARE)
    return figure, numbers | {"maps": heads}


def _overlay(inspected, values, title, unit):
    picture = inspected.photo.picture
    figure = plots.draw_overlay(picture, values, title, unit.capitalize())
    return figure, {"map": values, "unit": unit}


@_kind("photo", "Paper, section 4.5.", wide=True)
def layers(inspected: PhotoInspection) -> tuple:
    """Attention by layer.

    Attention of {tokens} in each layer, the mean of its heads. Each map has its own
    scale.
    """
    means = inspected.inspection.maps.mean(axis=1)
    title = f"{inspected.name}: mean attention of each layer"
    figure = plots.draw_layers(inspected.photo.picture, means, title)
    return figure, {"maps": means, "unit": _SHARE}


@_kind("photo", "Paper, section 4.5.", wide=True)
def heads(inspected: PhotoInspection) -> tuple:
    """Attention by head.

    Attention of {tokens} in every head of every layer: rows are layers, columns heads.
    Each map has its own scale.
    """
    maps = inspected.inspection.maps
    title = f"{inspected.name}: attention of every head"
    figure = plots.draw_heads(inspected.photo.picture, maps, title)
    return figure, {"maps": maps, "unit": _SHARE}


@_kind("photo", "As in Oquab et al. 2023, arXiv 2304.07193, figure 1.")
def features(inspected: PhotoInspection) -> tuple:
    """Patch features.

    Patches of similar colour have similar features after the last layer: red, green
    and blue are the first three principal components.
    """
    photo = inspected.photo
    tokens = inspected.inspection.features
    colors = explain.principal_colors(tokens.patches)
    title = f"{inspected.name}: patch features"
    figure = plots.draw_features([photo.picture], colors, [photo.name], title)
    numbers = {"colors": colors[0], "patches": tokens.patches[0]}
    if tokens.class_token is not None:
        numbers["class_token"] = tokens.class_token[0]
    return figure, numbers


@_kind("model", "Paper, section 4.5 and figure 7.", wide=True)
def figure_7(inspected: ModelInspection) -> tuple:
    """The paper's figure 7.

    What the model has learned: the filters of the patch embedding, the similarity
    of the position embeddings, and the attention distance of the heads.
    """
    panels = {
        "filters": available(lambda: inspected.filters),
        "similarity": available(lambda: inspected.similarity),
        "distance": available(lambda: known(inspected.distance)),
    }
    figure = plots.draw_figure_7(**panels, title=inspected.name)
    numbers = {name: panel for name, panel in panels.items() if panel is not None}
    if "filters" in numbers:
        numbers |= dataclasses.asdict(numbers.pop("filters"))
    return figure, numbers


@_kind("model", "Paper, section 4.5 and figure 7, left.")
def filters(inspected: ModelInspection) -> tuple:
    """Embedding filters.

    The first principal components of the filters of the patch embedding, each with
    its share of the variance. A trained model's look like smooth basis functions
    for the fine structure of a patch.
    """
    principal = inspected.filters
    title = f"{inspected.name}: filters of {principal.layer}"
    return plots.draw_filters(principal, title), dataclasses.asdict(principal)


@_kind("model", "Paper, section 4.5 and figure 7, centre.")
def position_similarity(inspected: ModelInspection) -> tuple:
    """Position embeddings.

    Each tile is a patch: the similarity of its position embedding to that of every
    other patch. In a trained model, patches that are near or in the same row or
    column are similar.
    """
    title = f"{inspected.name}: position embeddings"
    similarity = inspected.similarity
    figure = plots.draw_position_similarity(similarity, title)
    return figure, {"similarity": similarity, "unit": "cosine"}


@_kind(
    "model", "Paper, section 4.5, figure 7, right, and appendix D, attention distance."
)
def attention_distance(inspected: ModelInspection) -> tuple:
    """Attention distance.

    The mean distance that each head attends over, in pixels, averaged over all
    photos. Some heads attend far in the first layers already; with depth most do.
    """
    distance, size = known(inspected.distance), inspected.model.input_shape[1:3]
    title = f"{inspected.name}: attention distance"
    figure = plots.draw_attention_distance(distance, title, size)
    numbers = {"distance": distance, "unit": "pixels", "photos": inspected.photos}
    return figure, numbers
