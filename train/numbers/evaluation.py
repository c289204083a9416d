"""Judges a model for a number on the photos of a split."""

import pathlib
from collections.abc import Sequence

from train.common.errors import RunError
from train.data.sources.splits import Split
from train.numbers import report
from train.scoring.outputs import Outputs


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
    """Writes the report of a model's outputs for a split into a folder."""
    if outputs.values.shape[1] != 1:
        raise RunError(
            f"The model {outputs.loaded.name} answers with {outputs.values.shape[1]} "
            "numbers, and a table of photos has one: use keras-vit predict."
        )
    answers, truth = outputs.values[:, 0], outputs.labels[:, 0]
    return report.write(
        folder,
        part,
        answers,
        truth,
        settings=settings,
        results=results,
        split=split,
        notes=notes,
    )
