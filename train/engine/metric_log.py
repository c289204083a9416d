"""The metrics of a run: a file of JSON lines that survives kills and resumes."""

import json
import math
import os
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from train.common.errors import RunError
from train.common.files import whole_file
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import open_regular, read_bytes

# A validation measures the loss and some of these. The first that is there decides
# which is the best: the balanced accuracy is there only where that leads.
LEADING = (
    "mean_iou",
    "mean_average_precision",
    "balanced_accuracy",
    "accuracy",
    "r2",
)
VALIDATED = (*LEADING, "mean_absolute_error", "loss")
_BROKEN = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


class MetricLog:
    """The append-only `metrics.jsonl` of a run, one record per line.

    The file and its directory appear on the first `append`. A record counts once its
    line end is on disk: the half line that a killed run leaves behind is never read,
    and the next `append` or `rewind` removes it.
    """

    def __init__(self, path):
        self.path = Path(path)

    def append(self, step: int, **values: Any) -> None:
        """Adds a record of finite scalars (Python, NumPy or backend) and flushes it."""
        record: dict[str, float] = {"step": int(step)}
        for name, value in values.items():
            is_whole = isinstance(value, Integral)
            record[name] = number = int(value) if is_whole else float(value)
            if not math.isfinite(number):
                raise ValueError(
                    f"{self.path}: metric {name!r} at step {step} is {number}, which "
                    "JSON cannot hold: lower the learning rate or clip the gradients, "
                    "or leave the metric out of the log."
                )
        line = json.dumps(record).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open_regular(self.path, "a+b") as file:
            _remove_torn_line(file)
            file.write(line)

    def rewind(self, step: int) -> None:
        """Drops all records after `step`, in one move, before a run resumes there."""
        if self.path.exists():
            kept = [line for line, record in self._lines() if record["step"] <= step]
            with whole_file(self.path) as temporary:
                temporary.write_bytes(b"".join(line + b"\n" for line in kept))

    def records(self) -> list:
        """Returns the records as written, dicts with "step" and metrics."""
        return [record for _, record in self._lines()] if self.path.exists() else []

    def series(self, name: str) -> tuple:
        """Returns steps, int64 (n,), and values, float64 (n,), of one metric."""
        records = [record for record in self.records() if name in record]
        steps = np.array([record["step"] for record in records], dtype=np.int64)
        return steps, np.array([record[name] for record in records], dtype=np.float64)

    def best_validation(self) -> tuple:
        """Returns the step of the best validation, if any, and how many came after.

        The first of `LEADING` that is in the log decides.
        """
        logged = (self.series(f"val_{name}") for name in LEADING)
        found = [one for one in logged if len(one[0])]
        if not found:
            return None, 0
        steps, accuracies = found[0]
        place = int(np.argmax(accuracies))
        return int(steps[place]), len(steps) - 1 - place

    def validation(self, *, best: bool = False) -> dict[str, float]:
        """Returns what the last validation measured, or the best; {} of none.

        The names are those in `report.json`.
        """
        validations = {one["step"]: one for one in self.records() if "val_loss" in one}
        if not validations:
            return {}
        step = self.best_validation()[0] if best else max(validations)
        measured = validations[step]
        return {
            f"validation_{name}": measured[f"val_{name}"]
            for name in VALIDATED
            if f"val_{name}" in measured
        }

    def _lines(self):
        *whole, _torn = read_bytes(self.path, TABLE_BYTES).split(b"\n")
        for number, line in enumerate(whole, start=1):
            try:
                record = json.loads(line)
                record["step"] = int(record["step"])
                for value in record.values():
                    float(value)
            except _BROKEN as error:
                raise RunError(
                    f"{self.path}, line {number}: not a record with a step: "
                    f"{line[:80]!r}: remove that line to read the rest."
                ) from error
            yield line, record


def _remove_torn_line(file):
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
