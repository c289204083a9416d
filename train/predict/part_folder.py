"""A folder of answers in parts, each written whole, of photos that were planned."""

import collections
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from train.common.errors import RunError
from train.common.files import (
    explained,
    make_folder,
    read_json,
    remove_temporaries,
    whole_file,
    whole_folder,
    write_json,
    write_text,
)
from train.predict.answers import Answer, CsvLines
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import expand_home, read_text

if TYPE_CHECKING:
    import pyarrow

PARQUET, CSV = FORMATS = ("parquet", "csv")
# Reasons why photos cannot be read that are kept of a part.
_MOST_REASONS = 10
# Spark, Arrow and DuckDB leave out what begins with an underscore.
_MANIFEST, _PLAN, _DONE = "_manifest.json", "_plan", "_done"
_REMEDY = "remove the folder, or pass another --out"
_NUMBER = re.compile(r"(\d{5,9})\.json")


class Part(NamedTuple):
    """Photos that are answered together: of a list, or all in a shard.

    `folder` is where relative paths start from. One of `photos` and `shard` is empty.
    """

    folder: str
    photos: tuple[str, ...] = ()
    shard: str = ""


class Done(NamedTuple):
    """What a part that is written has: numbers of photos, and why some are not read."""

    answered: int
    unreadable: int
    reasons: list[str]
    counts: dict[str, int]
    marks: dict[str, int]


class PartFolder:
    """The folder of `--out` with its parts, and where the work on them stands.

    `_plan` has which photos belong to which part, and does not change once it is there;
    `_done` has a file for each part that is written, which comes last. So a part is
    written anew unless it is known to be whole, and all who write it write the same.

    `path` is that of the folder, `format` one of `FORMATS`, `features` the path of the
    folder for features, or None.
    """

    def __init__(self, path: str, format: str, features: str | None = None):
        self.path = expand_home(path).absolute()
        self.format = format
        self.features = None if features is None else expand_home(features).absolute()

    def begin(
        self, settings: dict[str, Any], places: Sequence[str], parts: Iterator[Part]
    ) -> int:
        """Plans the parts, or goes on with a plan; returns how many there are.

        `settings` are what the answers depend on, `places` what the user named.
        """
        known = {**settings, "photos": list(places), "format": self.format}
        known = json.loads(json.dumps(known))
        manifest, plan = self.path / _MANIFEST, self.path / _PLAN
        is_new = not manifest.exists()
        for folder, flag in ((self.path, "--out"), (self.features, "--features")):
            if folder is not None:
                make_folder(folder, flag)
                remove_temporaries(folder)
                if is_new and _has_files(folder):
                    raise RunError(f"{folder} has other files: pass another {flag}.")
        if is_new:
            _write_plan(plan, parts)
            write_json(manifest, {"settings": known}, "--out")
        _check(self.path, read_json(manifest, _REMEDY)["settings"], known)
        make_folder(self.path / _DONE, "--out")
        return len(_numbers(plan))

    def part(self, number: int) -> Part:
        """Returns a planned part."""
        path = self.path / _PLAN / f"{number:05d}.json"
        with explained(f"read {path}", "Mend the permissions"):
            fields = json.loads(read_text(path, TABLE_BYTES))
        return Part(fields["folder"], tuple(fields["photos"]), fields["shard"])

    def written(self) -> set[int]:
        """Returns the numbers of the parts that are written."""
        return _numbers(self.path / _DONE)

    def done(self, number: int) -> Done:
        """Returns what a part has that is written."""
        path = self.path / _DONE / f"{number:05d}.json"
        return read_json(path, _REMEDY, lambda fields: Done(**fields))

    def write(
        self,
        number: int,
        rows: Iterable[dict[str, Any]],
        columns: Sequence[str],
        num_features: int | None = None,
    ) -> None:
        """Writes a part, and then that it is done.

        Args:
            number: of the part.
            rows: as a `PhotoPredictor` gives them.
            columns: those of them that have the answer.
            num_features: of a photo, if rows have them.
        """
        read, reasons, unreadable = [], [], 0
        for row in rows:
            if row["error"] is None:
                read.append(row)
                continue
            unreadable += 1
            if len(reasons) < _MOST_REASONS:
                reasons.append(f"{row['file']}: {row['error']}")
        if self.features is not None:
            path = self.features / f"part-{number:05d}.{PARQUET}"
            _write_parquet(path, table(read, ("file", "features"), num_features))
        if columns and self.format == PARQUET:
            _write_parquet(self._file(number), table(read, ("file", *columns)))
        elif columns:
            _write_csv(self._file(number), read, columns)
        labels = (row["label"] for row in read if "probability" in columns)
        marks = (row["mark"] for row in read if row.get("mark"))
        counts, marked = (dict(collections.Counter(each)) for each in (labels, marks))
        done = Done(len(read), unreadable, reasons, counts, marked)
        write_json(self.path / _DONE / f"{number:05d}.json", done._asdict(), "--out")

    def finish(self, count: int) -> None:
        """Writes the manifest of so many parts, which are all."""
        parts = []
        for number in range(count):
            done, file = self.done(number), self._file(number).name
            numbers = {"rows": done.answered, "unread": done.unreadable}
            parts.append({"file": file, **numbers})
        total = {key: sum(one[key] for one in parts) for key in ("rows", "unread")}
        manifest = self.path / _MANIFEST
        settings = read_json(manifest, _REMEDY)["settings"]
        write_json(manifest, {"settings": settings, **total, "parts": parts}, "--out")

    def _file(self, number):
        return self.path / f"part-{number:05d}.{self.format}"


def _has_files(folder):
    """Returns whether others than hidden files, and what a kill left, are there."""
    return any(not name.startswith((".", "_")) for name in os.listdir(folder))


def _write_plan(plan, parts):
    with whole_folder(plan) as temporary:
        number = -1
        for number, part in enumerate(parts):
            text = json.dumps(part._asdict())
            (temporary / f"{number:05d}.json").write_text(text)
        if number < 0:
            raise RunError("There is no photo: give files, folders, shards or a list.")


def _numbers(folder):
    matches = map(_NUMBER.fullmatch, os.listdir(folder))
    return {int(match[1]) for match in matches if match}


def _check(path, earlier, now):
    differing = [key for key in {*earlier, *now} if earlier.get(key) != now.get(key)]
    if differing:
        names = ", ".join(sorted(differing)).replace("_", " ")
        raise RunError(
            f"{path} has answers of other settings ({names}): pass the same, or "
            "another --out."
        )


def _write_csv(path, rows, columns):
    has_marks = columns[-1] == "mark"
    pairs = columns[: len(columns) - has_marks]
    lines = CsvLines(pairs, has_marks)
    text = [lines.header]
    for row in rows:
        top = [(row[label], row[value]) for label, value in _paired(pairs)]
        known = tuple(pair for pair in top if pair[0] is not None)
        text.append(lines.line(Answer(row["file"], known, mark=row.get("mark"))))
    write_text(path, "".join(text), "--out")


def _paired(columns):
    return zip(columns[::2], columns[1::2], strict=True)


def _write_parquet(path, content):
    from pyarrow import parquet

    with whole_file(path, "--out") as temporary:
        parquet.write_table(content, temporary)


def table(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    num_features: int | None = None,
) -> "pyarrow.Table":
    """Returns columns of rows of a `PhotoPredictor` as a table of Arrow.

    Names are strings, numbers float64, features lists of `num_features` float32.
    """
    import pyarrow as pa

    arrays = []
    for column in columns:
        values = [row[column] for row in rows]
        if column == "features":
            arrays.append(_of_features(values, num_features))
        else:
            is_number = column.startswith(("probability", "value"))
            arrays.append(pa.array(values, pa.float64() if is_number else pa.string()))
    return pa.Table.from_arrays(arrays, names=list(columns))


def _of_features(vectors, size):
    import pyarrow as pa

    # A photo that cannot be read has none.
    is_absent = np.array([one is None for one in vectors], bool)
    flat = np.zeros((len(vectors), size), "float32")
    for row, vector in enumerate(vectors):
        if vector is not None:
            flat[row] = vector
    return pa.FixedSizeListArray.from_arrays(
        pa.array(flat.ravel()), size, mask=pa.array(is_absent)
    )
