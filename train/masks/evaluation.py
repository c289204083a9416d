"""Judges a model of masks on the photos of a split, in their own size."""

import pathlib
from collections.abc import Sequence

import keras

from keras_vit.structure import head_of
from train.data.sources.splits import Source, Split
from train.masks import report
from train.masks.segmenting import Segmenter
from train.masks.source import photos_and_masks


def evaluate(
    folder: pathlib.Path,
    source: Source,
    part: Split,
    model: keras.Model,
    *,
    split: str,
    settings: dict,
    results: dict,
    notes: Sequence[str],
) -> dict:
    """Writes the report of a model's answers to a split into a folder."""
    own = getattr(head_of(model), "class_names", None) or ()
    # The model may answer with classes that these masks do not have.
    names = max(source.class_names, own[: _num_classes(model)], key=len)
    judged = report.judged(
        photos_and_masks(part), part.num_examples, Segmenter(model), names
    )
    return report.write(
        folder, judged, settings=settings, results=results, split=split, notes=notes
    )


def _num_classes(model):
    """Returns how many classes a model has, without "no object"."""
    if isinstance(model.output, dict):
        return model.output["class_logits"].shape[-1] - 1
    return model.output_shape[-1]
