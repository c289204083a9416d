"""Judges a model of several labels on the photos of a split."""

import pathlib
from collections.abc import Sequence

import numpy as np

from keras_vit.structure import head_of
from train.data.sources.splits import Split
from train.scoring.outputs import Outputs
from train.several_labels import report
from zoo.common.safe_text import counted
from zoo.network.head import sigmoid


def evaluate(
    folder: pathlib.Path,
    part: Split,
    outputs: Outputs,
    *,
    split: str,
    settings: dict,
    results: dict,
    notes: Sequence[str],
) -> dict:
    """Writes the report of a model's outputs for a split into a folder.

    Labels of the model that the data set does not have are not judged. A model without
    thresholds, as of another library, gives a label from a half on.
    """
    thresholds = np.array(head_of(outputs.loaded.model).thresholds)
    if not len(thresholds):
        thresholds = np.full(outputs.values.shape[1], 0.5)
        notes = [*notes, "The model has no thresholds: labels count from a half on."]
    places = outputs.places
    judged = report.Judged(
        part,
        [outputs.class_names[place] for place in places],
        sigmoid(outputs.values)[:, places],
        outputs.labels > 0.5,
        thresholds[places],
    )
    others = outputs.values.shape[1] - len(places)
    if others:
        notes = [*notes, f"The data set lacks {counted(others, 'label')} of the model."]
    return report.write(
        folder, judged, settings=settings, results=results, split=split, notes=notes
    )
