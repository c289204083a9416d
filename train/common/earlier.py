"""What an earlier run of a command left, and may be replaced."""

import json

from train.common.errors import RunError
from train.common.files import file_names


def check_replaceable(out, record, files_of, what):
    """Makes sure that nothing but what the same command wrote would be replaced.

    Args:
        out: `pathlib.Path` of the folder, which may not be there.
        record: str, the name of the JSON file there that tells what was written.
        files_of: function of its content to the relative paths of the other files.
        what: str, what the command writes, in an error.

    Raises:
        RunError: the folder holds something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        known = {record, *files_of(json.loads((out / record).read_text("utf-8")))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{out} is there and is no earlier {what}, which could be replaced: pass "
            "another --out, or remove it."
        ) from error
    if others := sorted(file_names(out) - known):
        raise RunError(
            f"{out} holds an earlier {what}, and {others[0]} besides, which would be "
            "lost: move it, or pass another --out."
        )
