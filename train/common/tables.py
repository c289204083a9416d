"""Tables in files, as CSV that spreadsheets read without computing."""

import csv
import os
from collections.abc import Iterable, Sequence
from typing import Any

from train.common.files import whole_file
from zoo.common.safe_text import plain_cell


def write(
    path: str | os.PathLike,
    header: Sequence[str],
    rows: Iterable[Iterable[Any]],
    flag: str = "--run_dir",
) -> None:
    """Writes a CSV file whole; texts in it are `safe_text.plain_cell`s.

    Bytes of a file name that are not UTF-8 are escaped. `flag` names the
    folder, for the message of an error.
    """
    with (
        whole_file(path, flag) as temporary,
        open(
            temporary, "w", encoding="utf-8", errors="backslashreplace", newline=""
        ) as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow(
                [plain_cell(one) if isinstance(one, str) else one for one in row]
            )
