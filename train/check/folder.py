"""The folder of a check, which no check of other data replaces."""

import os
import pathlib

from train.common.errors import RunError
from train.common.files import make_folder, read_json
from train.data.registry import real_path, short_name

RECORD = "check.json"


def folder_of(dataset: str, out: str | os.PathLike | None) -> pathlib.Path:
    """Returns the folder of a check, which is made: `out`, or one by the data's name.

    Raises a `RunError` where that has the check of other data of the same name, which
    are still where they were: a project may have been moved.
    """
    if out is not None:
        return make_folder(out, "--out")
    # A table, an archive and a folder of one name are different data.
    name = short_name(dataset, endings=True)
    folder = make_folder(f"runs/checks/{name}", "--out")
    record, data = folder / RECORD, real_path(dataset)
    if record.exists():
        other = read_json(record, "remove it, or pass --out").get("data", data)
        is_gone = os.path.isabs(other) and not os.path.exists(other)
        if other != data and not is_gone:
            raise RunError(
                f"{folder} holds the check of other data, {other}: pass --out, or "
                "remove it."
            )
    return folder
