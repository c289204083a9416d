"""The answers of runs to the same test images, from their mistakes.csv."""

import collections
import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass

from train.common.errors import RunError, first_line
from train.models.run_directory import RunDirectory
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import read_text
from zoo.common.safe_text import of_plain_cell


@dataclass(frozen=True)
class Answered:
    """An answer of a run to a test image."""

    name: str
    probability: float
    is_correct: bool


# The file below the folder of all, the true class, and the how-manieth of both it is.
Image = tuple[str, str, int]


def read(run: str | os.PathLike) -> dict[Image, Answered]:
    """Returns the answers of a run to its test images.

    Raises a `RunError` where the run has no mistakes.csv, or a damaged one.
    """
    path = RunDirectory(run).mistakes
    remedy = "give the command again that began the run, which tests it again"
    if not path.exists():
        raise RunError(f"{path} is missing: {remedy}.")
    try:
        text = read_text(path, TABLE_BYTES)
        rows = [*csv.DictReader(io.StringIO(text, newline=""))]
        answers = [
            Answered(
                of_plain_cell(row["answer"]),
                float(row["probability"]),
                row["correct"] == "yes",
            )
            for row in rows
        ]
        names, truths = (
            [of_plain_cell(row[column]) for row in rows] for column in ("file", "truth")
        )
    except (OSError, ValueError, LookupError, TypeError, csv.Error) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise RunError(f"{path} is damaged ({reason}): {remedy}.") from error
    return dict(zip(images(names, truths), answers, strict=True))


def images(names: Sequence[str], truths: Sequence[str]) -> list[Image]:
    """Returns the images of names, such as paths, and true classes.

    Paths count from the folder that all files are in, which may have been moved. Copies
    of an image are numbered: runs give them the same answer, so their order is nothing.
    """
    counted, numbered = collections.Counter(), []
    for image in zip(_below_folder(names), truths, strict=True):
        numbered.append((*image, counted[image]))
        counted[image] += 1
    return numbered


def _below_folder(names):
    try:
        folder = os.path.commonpath([os.path.dirname(name) for name in names])
    except ValueError:  # of several disks, or none
        return names
    return [name.removeprefix(folder).lstrip(os.sep) for name in names]
