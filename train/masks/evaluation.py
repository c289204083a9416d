"""Judges a model of masks on the photos of a split, in their own size."""

import pathlib
from collections.abc import Sequence

import keras

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
    judged = report.judged(
        photos_and_masks(part),
        part.num_examples,
        Segmenter(model),
        source.class_names,
    )
    return report.write(
        folder, judged, settings=settings, results=results, split=split, notes=notes
    )
