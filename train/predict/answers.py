"""Answers for photos, and the CSV and JSON Lines files that they are appended to."""

import array
import contextlib
import csv
import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.common.errors import RunError
from train.common.files import make_folder, read_json, write_json
from train.predict.remote import is_url
from zoo.common.limits import CLASSES
from zoo.common.regular_files import expand_home, open_regular
from zoo.common.safe_text import brief, of_plain_cell, plain_cell
from zoo.network.head import NUMBERS

TOP = 5
# The column of all labels that a photo is given, with this between them.
LABELS, SEPARATOR = "labels", "|"
# The setting that says which these are.
THRESHOLDS = "thresholds"
# No record has more bytes: a path and five names of classes.
_MOST_BYTES = 2**16
# This setting has the directory that relative paths start from, relative to that of the
# file, so that both can be moved.
_PATHS_FROM = "relative_paths_from"
# Digests, which say nothing to people.
_DIGESTS = ("weights", "class_names", "list_on_standard_input")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a model answers to a photo, whose path is `spelled`.

    `top` has name and probability of the most likely classes, the best first: `TOP` of
    them, or as many as the model has. With `has_numbers` it has name and number of each
    of a model's numbers, in their order. `labels` are the classes that reach the
    thresholds of a model of several, None of another. `mark` is one of
    `train.predict.doubts.MARKS` where the answer is doubted, None where nothing is
    judged.
    """

    file: str
    top: tuple[tuple[str, float], ...]
    has_numbers: bool = False
    mark: str | None = None
    labels: tuple[str, ...] | None = None


def spelled(path: str) -> str:
    r"""Returns a path as text of UTF-8; other bytes become `\udc80` to `\udcff`.

    >>> spelled("caf\udce9.jpg")
    'caf\\udce9.jpg'
    """
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def of_spelled(text: str) -> str:
    """Returns the path of a text by `spelled`."""
    return re.sub(r"\\u(dc[89a-f][\da-f])", lambda match: chr(int(match[1], 16)), text)


def named_reason(file: str, reason: str) -> str:
    """Returns why a photo cannot be read, with its name, which the reason may have.

    >>> named_reason("a.png", "It is damaged."), named_reason("a.png", "No a.png.")
    ('a.png: It is damaged.', 'No a.png.')
    """
    return reason if file in reason else f"{file}: {reason}"


def columns_of(problem_type: str, classes: int) -> tuple[str, ...]:
    """Returns the columns of the answers of a model of so many classes, best first.

    >>> columns_of("single_label_classification", 1000)[:4]
    ('label', 'probability', 'label_2', 'probability_2')
    """
    count, value = TOP, "probability"
    if problem_type == NUMBERS and classes in range(1, CLASSES):
        count, value = classes, "value"
    places = ("", *(f"_{place}" for place in range(2, count + 1)))
    return tuple(f"{name}{place}" for place in places for name in ("label", value))


class AnswerFile:
    """A file that answers are appended to, in whole lines.

    A kill leaves at most the last line unfinished, and an interruption none. Beside it
    `NAME.settings.json` has the settings that the answers depend on. Relative paths in
    it start from the directory in which it was begun, wherever it is gone on with.

    `count` is how many answers it has. Raises a `RunError` where the file was changed,
    or exists without `resume`.
    """

    def __init__(self, path, resume=False):
        self.path = expand_home(path)
        self._settings = self.path.with_name(f"{self.path.name}.settings.json")
        self._format = _format(self.path, {})
        self._file, self._end, self.count = None, 0, 0
        self._known, self._earlier = np.zeros(0, "uint64"), None
        self._folder = self._working = os.getcwd()
        if not self.path.exists():
            return
        if not resume:
            raise RunError(
                f"{self.path} exists: pass --resume to go on with it, another --out, "
                "or remove it."
            )
        self._earlier = self._read_settings()
        self._format = _format(self.path, self._earlier)
        self._read_known()

    def spell(self, path: str) -> str:
        """Returns the text for a path in the file."""
        is_known = self._folder == self._working or os.path.isabs(path)
        if not (is_known or is_url(path)):
            path = _relative(path, self._folder)
        return spelled(path)

    def path_of(self, file: str) -> str:
        """Returns the path that a text in the file stands for, absolute, or the URL."""
        if is_url(file):
            return file
        path = os.path.join(self._folder, file)
        is_spelled = "\\udc" in file and not os.path.lexists(path)
        return os.path.join(self._folder, of_spelled(file)) if is_spelled else path

    def has(self, path: str) -> bool:
        """Returns whether the file had an answer for a photo when it was opened."""
        key = self._key(self.spell(path))
        place = np.searchsorted(self._known, key)
        return bool(place < len(self._known) and self._known[place] == key)

    def open(self, settings: dict[str, Any]) -> None:
        """Makes the file, or checks its settings and drops an unfinished last line.

        `settings` are a dict for JSON. A RunError says which of them differ.
        """
        if self._earlier is not None:
            check_settings(self.path, self._earlier, settings)
        else:
            self._format = _format(self.path, settings)
            make_folder(self.path.parent, "--out")
            start = spelled(_relative(self._folder, self.path.parent.resolve()))
            write_json(self._settings, {**settings, _PATHS_FROM: start}, "--out")
        # Do not buffer, so that lines are one write.
        try:
            self._file = open_regular(self.path, "ab", buffering=0)
        except OSError as error:
            raise RunError(
                f"Cannot write {self.path}: {error.strerror or error}. Mend the "
                "permissions, or pass another --out."
            ) from error
        self._file.truncate(self._end)
        if not self._end:
            self._write(self._format.header)

    def append(self, answers: Sequence[Answer]) -> None:
        self._write("".join(map(self._format.line, answers)))
        self.count += len(answers)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self):
        for answer, _ in self._records():
            yield answer

    def _write(self, text):
        content = memoryview(text.encode("utf-8"))
        try:
            while content:
                content = content[self._file.write(content) :]
            self._end = self._file.seek(0, os.SEEK_END)
        except OSError as error:
            # The file ends in a whole line, as if nothing had been begun.
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise RunError(
                f"Cannot write {self.path}: {error.strerror or error}. Free space, and "
                "go on with --resume, or pass another --out."
            ) from error

    def _records(self):
        """Yields the answers of whole records, and the place in the file after each."""
        header = self._format.header.encode()
        with open_regular(self.path) as file:
            start = file.read(len(header))
            if start != header[: len(start)]:
                raise ValueError(f"it begins with {start[:40]!r}")
            end, record, quotes = len(start), b"", 0
            for line in file:
                record += line
                if not line.endswith(b"\n"):
                    return
                quotes += line.count(b'"')
                # In a cell that is not closed the line breaks, and the record goes on.
                if quotes % 2 == 0 or not self._format.has_breaks:
                    end += len(record)
                    yield self._format.answer(record.decode("utf-8")), end
                    record, quotes = b"", 0
                elif len(record) > _MOST_BYTES:
                    raise ValueError("a quotation mark has no end")

    def _read_known(self):
        hashes = array.array("Q")
        header = self._format.header.encode()
        try:
            if self.path.stat().st_size >= len(header):
                self._end = len(header)
            for answer, end in self._records():
                hashes.append(self._key(answer.file))
                self._end = end
        except (ValueError, LookupError, TypeError, csv.Error) as error:
            raise RunError(
                f"{self.path} was changed (after answer {len(hashes):,}: {error}), so "
                "nothing can be added: remove it, or pass another --out."
            ) from error
        self.count, self._known = len(hashes), np.sort(np.array(hashes))

    def _key(self, file):
        place = os.path.join(spelled(self._folder), file)
        text = os.path.normpath(place).encode("utf-8")
        digest = hashlib.blake2b(text, digest_size=8).digest()
        return np.frombuffer(digest, "uint64")[0]

    def _read_settings(self):
        if not self._settings.is_file():
            raise RunError(
                f"{self.path} has no {self._settings.name} beside it, so its settings "
                "are not known: remove it, or pass another --out."
            )
        remedy = f"remove it and {self.path.name}, or pass another --out"
        earlier = read_json(self._settings, remedy)
        start = of_spelled(str(earlier.pop(_PATHS_FROM, self._folder)))
        place = os.path.join(self.path.parent.resolve(), start)
        self._folder = os.path.normpath(place)
        return earlier


def check_settings(
    path: pathlib.Path, earlier: dict[str, Any], now: dict[str, Any]
) -> None:
    """Refuses other settings than those that a file or folder was begun with."""
    now = json.loads(json.dumps(now))
    differences = [
        f"other {name.replace('_', ' ')}"
        if name in _DIGESTS
        else f"{name} {brief(earlier.get(name))} (now {brief(now.get(name))})"
        for name in sorted(earlier.keys() | now.keys())
        if earlier.get(name) != now.get(name)
    ]
    if differences:
        raise RunError(
            f"{path} has answers of other settings: {', '.join(differences)}. Pass "
            "the same, or another --out."
        )


class CsvLines:
    """A row per photo: file, then label and value of each answer, the best first.

    With `has_labels` the column behind the file has all labels that are given, with |
    between them; with `has_marks` the last column is the mark. Spreadsheets compute
    nothing of texts, which are `safe_text.plain_cell`s.
    """

    has_breaks = True

    def __init__(self, pairs, has_marks, has_labels=False):
        self._has_labels, self._has_marks = has_labels, has_marks
        self._count = 1 + has_labels + len(pairs)
        columns = ("file", *[LABELS] * has_labels, *pairs, *["mark"] * has_marks)
        self.header = ",".join(columns) + "\n"

    def line(self, answer: Answer) -> str:
        cells = [plain_cell(answer.file)]
        if self._has_labels:
            cells.append(plain_cell(SEPARATOR.join(answer.labels)))
        for name, value in answer.top:
            cells += [plain_cell(name), str(value)]
        cells += [""] * (self._count - len(cells))
        if self._has_marks:
            cells.append(answer.mark or "")
        return ",".join(map(_cell, cells)) + "\n"

    def answer(self, record: str) -> Answer:
        [cells] = csv.reader([record])
        file, *labels = cells[: self._count]
        given = None
        if self._has_labels:
            text = of_plain_cell(labels.pop(0))
            given = tuple(text.split(SEPARATOR)) if text else ()
        pairs = zip(labels[::2], labels[1::2], strict=True)
        [mark] = cells[self._count :] if self._has_marks else [None]
        return Answer(
            of_plain_cell(file),
            tuple(
                (of_plain_cell(name), float(value)) for name, value in pairs if value
            ),
            mark=mark,
            labels=given,
        )


class _JsonLines:
    """An object per photo: file, label, value, and top, a list of these two.

    With `has_labels` it also has a list of all labels that are given, with `has_marks`
    the mark.
    """

    header, has_breaks = "", False

    def __init__(self, pairs, has_marks, has_labels=False):
        self._value, self._has_marks = pairs[1], has_marks
        self._has_labels = has_labels

    def line(self, answer: Answer) -> str:
        top = [{"label": name, self._value: value} for name, value in answer.top]
        fields = {"file": answer.file, **top[0], "top": top}
        if self._has_labels:
            fields[LABELS] = answer.labels
        if self._has_marks:
            fields["mark"] = answer.mark or ""
        return json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"

    def answer(self, record: str) -> Answer:
        fields = json.loads(record)
        top = tuple((one["label"], float(one[self._value])) for one in fields["top"])
        mark = fields["mark"] if self._has_marks else None
        given = tuple(fields[LABELS]) if self._has_labels else None
        return Answer(fields["file"], top, mark=mark, labels=given)


FORMATS = {".csv": CsvLines, ".jsonl": _JsonLines}


def _format(path, settings):
    """Returns the format of a file, which has answers of such settings."""
    pairs = columns_of(settings.get("problem_type", ""), settings.get("classes", 0))
    has_marks, has_labels = settings.get("unsure") is not None, THRESHOLDS in settings
    return FORMATS[path.suffix](pairs, has_marks, has_labels)


def _cell(text):
    # The csv module of some versions of Python leaves carriage returns as they are.
    if not any(character in text for character in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _relative(path, start):
    try:
        return os.path.relpath(path, start)
    except ValueError:  # on another drive of Windows
        return os.path.abspath(path)
