"""What a path is that holds no checkpoint, and what to pass instead."""

import itertools
import os
import pathlib
import urllib.parse

from zoo.containers.arrays import CheckpointError
from zoo.containers.opening import (
    CARD,
    EXPORTS,
    EXTENSIONS,
    RUN_MODEL,
    UNREAD,
    WEIGHTS,
    models_in,
)

_MODEL_FIRST = "pass a model, which in commands comes before photos and data."
# How many folders in a folder are searched for a model or a photo.
_MOST_SEARCHED = 100


def _photo_endings():
    # Only a refusal needs the room of photos, which each start would import.
    from zoo import photos

    return photos.endings()


def refuse(path: str | os.PathLike) -> None:
    """Raises a `CheckpointError` that says what a path is, if it is known.

    Paths that may be checkpoints are left to `zoo.read`: files of any other ending,
    and folders with weights.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        what = _of_folder(path)
    else:
        what = _of_file(path.name, "keras-vit predict runs it")
    if what:
        raise CheckpointError(f"{path} {what}")


def refuse_url(url: str) -> None:
    """As `refuse`, of the file that a URL means."""
    name = urllib.parse.urlsplit(url).path
    if name.endswith(".keras"):
        raise CheckpointError(f"{url} is a model of Keras: download it, pass the file.")
    if what := _of_file(name, "download it for keras-vit predict"):
        raise CheckpointError(f"{url} {what}")


def _of_file(name, use):
    if name.endswith(EXPORTS):
        return f"is an export: {use}, or pass what it was made from."
    if name.lower().endswith(_photo_endings()):
        return f"is a photo, no model: {_MODEL_FIRST}"
    return ""


def _of_folder(folder):
    held = models_in(folder)
    if held.card or (held.weights and not held.weights.endswith(UNREAD)):
        return ""
    if held.run == RUN_MODEL:
        return (
            f'is a finished run, loaded by keras.saving.load_model("{folder / held.run}'
            '"); keras-vit publish makes weights of it.'
        )
    if held.run:
        return "is a run that has not finished: give the command again that began it."
    if held.exports:
        return f"is an export, {held.exports[0]}: pass what it was made from."
    return _of_contents(folder, held.weights)


def _of_contents(folder, weights):
    """Returns what a folder holds by the names of its files, "" if they may be read.

    `weights` are those that `models_in` finds in the folder itself, if any.
    """
    searched = [*itertools.islice(os.walk(folder), _MOST_SEARCHED)]
    for place, _, names in searched[1:]:
        if {RUN_MODEL, CARD, *WEIGHTS} & {*names}:
            return f"holds models: pass one of them, such as {place}."
    if any(name.endswith(EXTENSIONS) for name in searched[0][2]):
        return ""  # the error of `zoo.read` names it
    files = [name for _, _, names in searched for name in sorted(names)]
    unread = [name for name in files if name.endswith(UNREAD)]
    shown = [name for name in files if name.lower().endswith(_photo_endings())]
    # A pickle among photos, such as labels.pkl, need not hold weights.
    if unread and (weights or len(unread) >= len(shown)):
        return (
            f"holds weights of a kind that is not read, {unread[0]}: save their arrays "
            "as .safetensors or .npz, and pass that file."
        )
    return f"holds photos, no model: {_MODEL_FIRST}" if shown else ""
