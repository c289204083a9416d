"""Photos that are asked for: a list to be labelled, and what then takes the labels."""

import contextlib
import csv
import io
import os
import shlex
from collections.abc import Iterable

from keras_vit_start import typed
from train.common.errors import RunError
from train.common.files import read_json, write_text
from train.common.typed_flags import without_flags
from train.models.run_directory import RunDirectory
from train.predict.answers import Answer, of_spelled, spelled
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import plain_cell

_COLUMNS = ("path", "label", "guess", "probability")
# The gallery is downloaded as this file.
_DOWNLOADED = "relabel.csv"


def write_list(path: str | os.PathLike, answers: Iterable[Answer]) -> None:
    """Writes a CSV file of photos whose labels are to be filled in."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for answer in answers:
        guess, probability = answer.top[0]
        # The list may be used in another directory.
        place = spelled(os.path.abspath(of_spelled(answer.file)))
        writer.writerow([plain_cell(place), "", plain_cell(guess), probability])
    write_text(path, text.getvalue(), "--out")


def advice(model: str, out: object = None, gallery: object = None) -> str:
    """Returns how photos are labelled, and the command that then trains on them.

    `out` is the list of the photos, `gallery` their page, where they were asked for.
    """
    ways = []
    if gallery is not None:
        ways.append(
            f"press Label on those in {gallery} that are of a class, and download "
            f"{_DOWNLOADED}"
        )
    if out is not None:
        ways.append(f"fill in the column label of {out} for those that are of a class")
    start = "labels of these photos would help most, that of the first most of all: "
    if not ways:
        return (
            f"{start}pass --gallery=ask.html to label them in a browser, or "
            "--out=ask.csv for a list to fill in"
        )
    then = command(model, str(_DOWNLOADED if out is None else out))
    return f"{start}{', or '.join(ways)}; then train on them, too: {then}"


def command(model: str, labels: str) -> str:
    """Returns the command that makes the run of a model again, with a file of labels.

    Of a model that is not a run's, the data are not known.
    """
    path = expand_home(model)
    run = RunDirectory(path.parent if path.suffix == ".keras" else path)
    added = f"--relabel={labels}"
    words: list[str] = []
    # A report of an earlier version, or one that was changed, has none.
    with contextlib.suppress(RunError, OSError, ValueError):
        given = read_json(run.results, "remove it").get("command") or ""
        words = without_flags(str(given), ["run_dir", "extend", "seeds"])
    if not any(word.endswith("finetune") for word in words):
        return typed("finetune", ["photos/", added])
    return shlex.join([*words, added, f"--run_dir={run.path}-labelled"])
