"""A folder of answers in parts, each written whole, of photos that were planned."""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from train.common.errors import RunError, first_line
from train.common.files import (
    make_folder,
    read_json,
    remove_temporaries,
    whole_file,
    whole_folder,
    write_json,
)
from train.predict.answers import (
    LABELS,
    SEPARATOR,
    Answer,
    CsvLines,
    check_settings,
    named_reason,
)
from train.predict.photo_predictor import Passing
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
    """Photos that are answered together: of a list, or in a shard.

    `folder` is where relative paths start from. One of `photos` and `shard` is empty.
    `start` and `stop` are those of a slice of the photos in the shard, whose file
    `version` was planned, see `train.predict.shards.version_of`.
    """

    folder: str
    photos: tuple[str, ...] = ()
    shard: str = ""
    start: int = 0
    stop: int | None = None
    version: Sequence[int] = ()


class Done(NamedTuple):
    """What a part that is written has: numbers of photos, and why some are not read.

    `is_passing` says that at another time some of these may be.
    """

    answered: int
    unreadable: int
    reasons: list[str]
    counts: dict[str, int]
    marks: dict[str, int]
    is_passing: bool = False


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
        if features is not None and self.features.suffix:
            raise RunError(
                f"--features={features} has the name of a file, and beside a folder "
                "--out it is a folder: pass a name without an ending."
            )
        own = self.folders
        is_nested = any(one in other.parents for one in own for other in own)
        if is_nested or len({*own}) < len(own):
            raise RunError(
                "--out and --features must be two folders, none in the other."
            )

    @property
    def folders(self) -> list[pathlib.Path]:
        """The folder of the answers, and that of features, if there is one."""
        return [self.path, *filter(None, [self.features])]

    @property
    def is_planned(self) -> bool:
        """Whether the photos of all parts are known."""
        return (self.path / _MANIFEST).exists()

    def plan(self, parts: Iterable[Part]) -> None:
        """Plans the parts."""
        for folder, flag in zip(self.folders, ("--out", "--features"), strict=False):
            if _has_files(folder):
                raise RunError(f"{folder} has other files: pass another {flag}.")
        # They may be of an earlier plan, whose other files a user has removed.
        shutil.rmtree(self.path / _DONE, ignore_errors=True)
        _write_plan(self.path / _PLAN, parts)

    def begin(self, settings: dict[str, Any]) -> int:
        """Begins a plan or goes on with it; returns how many parts it has.

        `settings` are what the answers depend on. Other ones than those that the plan
        was begun with are refused.
        """
        for folder in self.folders:
            remove_temporaries(folder)
        settings = self._known(settings)
        if self.is_planned:
            check_settings(self.path, self._settings(), settings)
        else:
            write_json(self.path / _MANIFEST, {"settings": settings}, "--out")
        make_folder(self.path / _DONE, "--out")
        return len(_numbers(self.path / _PLAN))

    def _known(self, settings):
        """Returns all that answers depend on."""
        own = {"started_in": os.getcwd(), "format": self.format}
        if self.features is not None:
            own["features"] = str(self.features)
        return {**settings, **own}

    def _settings(self):
        """Returns the settings that the plan was made for."""
        path = self.path / _MANIFEST
        return read_json(path, _REMEDY, lambda manifest: dict(manifest["settings"]))

    def part(self, number: int) -> Part:
        """Returns a planned part."""
        path = self.path / _PLAN / f"{number:05d}.json"
        try:
            fields = json.loads(read_text(path, TABLE_BYTES))
            return Part(**{**fields, "photos": tuple(fields["photos"])})
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RunError(
                f"{path} is damaged ({first_line(error)}): {_REMEDY}."
            ) from error

    def written(self) -> set[int]:
        """Returns the numbers of the parts that are noted as written."""
        return _numbers(self.path / _DONE)

    def finished(self) -> set[int]:
        """Returns those that are there, and have no photo that may be read by now."""
        # Without classes there are features alone.
        has_answers = self._settings()["classes"] > 0

        def is_there(number: int) -> bool:
            paths = [self._file(number)] * has_answers
            if self.features is not None:
                paths.append(self._features_file(number))
            return all(path.exists() for path in paths)

        return {
            number
            for number in self.written()
            if not self.done(number).is_passing and is_there(number)
        }

    def unnote(self, number: int) -> None:
        """Notes that a part is to be written anew."""
        (self.path / _DONE / f"{number:05d}.json").unlink(missing_ok=True)

    def done(self, number: int) -> Done:
        """Returns what a part has that is written."""
        path = self.path / _DONE / f"{number:05d}.json"
        return read_json(path, _REMEDY, lambda fields: Done(**fields))

    def write(
        self,
        number: int,
        chunks: Iterable[list[dict[str, Any]]],
        columns: Sequence[str],
        num_features: int | None = None,
    ) -> None:
        """Writes a part, and then that it is done.

        Args:
            number: of the part.
            chunks: lists of rows as a `PhotoPredictor` gives them; one at a time is in
                memory.
            columns: those of them that have the answer.
            num_features: of a photo, if rows have them.
        """
        answered, unreadable, reasons, is_passing = 0, 0, [], False
        counts, marks = collections.Counter(), collections.Counter()
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(file)
                for file in self._opened(number, columns, num_features)
            ]
            for rows in chunks:
                read = [row for row in rows if row["error"] is None]
                for add in files:
                    add(read)
                answered += len(read)
                unread = [row for row in rows if row["error"] is not None]
                unreadable += len(unread)
                is_passing |= any(isinstance(row["error"], Passing) for row in unread)
                left = _MOST_REASONS - len(reasons)
                reasons += [
                    named_reason(row["file"], row["error"]) for row in unread[:left]
                ]
                if "probability" in columns:
                    counts.update(row["label"] for row in read)
                marks.update(row["mark"] for row in read if row.get("mark"))
        counted = (dict(counts), dict(marks))
        done = Done(answered, unreadable, reasons, *counted, is_passing)
        write_json(self.path / _DONE / f"{number:05d}.json", done._asdict(), "--out")

    def _opened(self, number, columns, num_features):
        """Yields the files of a part, which take lists of rows."""
        if self.features is not None:
            path = self._features_file(number)
            yield _parquet_file(path, ("file", "features"), num_features)
        if columns and self.format == PARQUET:
            yield _parquet_file(self._file(number), ("file", *columns))
        elif columns:
            yield _csv_file(self._file(number), columns)

    def finish(self, count: int) -> None:
        """Writes how many rows so many parts, which are all, have together."""
        total = {"parts": count, "rows": 0, "unread": 0}
        for done in map(self.done, range(count)):
            total["rows"] += done.answered
            total["unread"] += done.unreadable
        manifest = {"settings": self._settings(), **total}
        write_json(self.path / _MANIFEST, manifest, "--out")

    def _file(self, number):
        return self.path / f"part-{number:05d}.{self.format}"

    def _features_file(self, number):
        return self.features / f"part-{number:05d}.{PARQUET}"


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


@contextlib.contextmanager
def _csv_file(path, columns):
    has_marks = columns[-1] == "mark"
    has_labels = columns[0] == LABELS
    pairs = columns[has_labels : len(columns) - has_marks]
    lines = CsvLines(pairs, has_marks, has_labels)

    def line(row: dict[str, Any]) -> str:
        top = zip(pairs[::2], pairs[1::2], strict=True)
        known = ((row[label], row[value]) for label, value in top)
        answers = tuple(pair for pair in known if pair[0] is not None)
        given = row.get(LABELS)
        labels = tuple(given.split(SEPARATOR)) if given else ()
        answer = Answer(row["file"], answers, mark=row.get("mark"), labels=labels)
        return lines.line(answer)

    with (
        whole_file(path, "--out") as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        file.write(lines.header)
        yield lambda rows: file.writelines(map(line, rows))


@contextlib.contextmanager
def _parquet_file(path, columns, num_features=None):
    from pyarrow import parquet

    schema = table([], columns, num_features).schema
    with (
        whole_file(path, "--out") as temporary,
        parquet.ParquetWriter(temporary, schema) as file,
    ):
        yield lambda rows: file.write_table(table(rows, columns, num_features))


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
