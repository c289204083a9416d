"""Predictions on Ray: a dataset of photos in, one with their answers out."""

import contextlib
import inspect
import os
import pathlib
import tempfile
import warnings
from collections.abc import Generator, Sequence
from typing import Any

import pyarrow as pa
import ray
import ray.data

from train.common.errors import LibraryError, RunError, first_line
from train.predict.part_folder import table
from train.predict.part_work import PartWork
from train.predict.photo_predictor import PhotoPredictor

# How often a part is done again whose worker has ended.
_RETRIES = 5
# What processes on this machine print, and how much of it is shown after a crash.
_LOGS, _CRASH = "ray/session_latest/logs", b"Fatal Python error: "
_LAST_BYTES, _LAST_LINES = 2**18, 10


def predict(
    dataset: ray.data.Dataset,
    predictor: PhotoPredictor,
    *,
    column: str = "file",
    workers: int | None = None,
    batch_size: int = 256,
    **options: Any,
) -> ray.data.Dataset:
    """Returns a dataset with the answers to its photos.

    Each worker loads the model once.

    Args:
        dataset: `ray.data.Dataset`.
        predictor: `PhotoPredictor`.
        column: str, of the photos: their paths or URLs, or bytes, as
            `ray.data.read_binary_files` has them.
        workers: int; by default one per processor of the cluster.
        batch_size: int, photos that a worker gets at a time.
        options: of `ray.data.Dataset.map_batches`, such as `num_gpus`.

    Returns:
        `ray.data.Dataset` with the columns of the other and those that a call of the
        predictor returns, but for `file`; they replace others of their names.

    Example:
        >>> photos = ray.data.read_binary_files("photos/")  # doctest: +SKIP
        >>> predict(photos, predictor, column="bytes")  # doctest: +SKIP
    """
    return dataset.map_batches(
        _Worker,
        fn_constructor_args=(predictor, column),
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=workers or _processors()),
        **options,
    )


class _Worker:
    """Answers batches of a dataset, in a process of its own."""

    def __init__(self, predictor, column):
        self._predictor, self._column = predictor, column

    def __call__(self, batch: pa.Table) -> pa.Table:
        predictor = self._predictor
        rows = predictor(batch[self._column].to_pylist())
        answers = table(rows, predictor.columns[1:], predictor.classifier.num_features)
        for name in answers.column_names:
            if name in batch.column_names:
                batch = batch.drop_columns([name])
            batch = batch.append_column(name, answers[name])
        return batch


def run(work: PartWork, numbers: Sequence[int], workers: int | None) -> Generator[int]:
    """Yields numbers of parts as workers have done the work on them.

    A worker that is killed is started again, with the part that it was at.
    """
    if not ray.is_initialized():
        try:
            # RAY_ADDRESS says which cluster; without it one is started here.
            ray.init(include_dashboard=False, log_to_driver=False)
        except Exception as error:
            raise LibraryError(
                f"Ray does not start ({first_line(error)}): check RAY_ADDRESS, or "
                "leave --runner=ray out; --verbose shows what Ray prints."
            ) from error
    rows = [{"number": number} for number in numbers]
    if not rows:
        return
    workers = min(workers or _processors(), len(rows))
    data = ray.data.from_items(rows, override_num_blocks=len(rows))
    with warnings.catch_warnings(action="ignore"):
        parts = data.map_batches(
            _PartWorker,
            fn_constructor_args=(work.shared_by(workers),),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers),
            **_limits(data.map_batches),
        )
    try:
        for row in parts.iter_rows():
            if row["error"]:
                raise RunError(row["error"])
            yield row["number"]
    except ray.exceptions.RayError as error:
        _write_last_lines()
        raise LibraryError(
            f"Ray failed ({first_line(error)}): the same command goes on with what is "
            "not written, and with --verbose shows what Ray prints."
        ) from error


def _limits(map_batches):
    """Returns how often a part is done again: by default forever if it crashes."""
    # Ray 2.64 is to take no such options.
    is_taken = "ray_remote_args" in inspect.signature(map_batches).parameters
    return {"max_task_retries": _RETRIES} if is_taken else {}


def _write_last_lines():
    """Writes what a worker that crashed here printed to the descriptor of errors."""
    folder = pathlib.Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), _LOGS)
    with contextlib.suppress(OSError, ValueError):
        files = sorted(folder.glob("worker-*.err"), key=os.path.getmtime)
        texts = [file.read_bytes()[-_LAST_BYTES:] for file in files]
        text = max(texts, key=lambda text: _CRASH in text)
        # Python adds what all threads are at.
        lines = text.partition(_CRASH)[0].splitlines(keepends=True)
        os.write(2, b"".join(lines[-_LAST_LINES:]))


class _PartWorker:
    """Does the work on a part, in a process of its own."""

    def __init__(self, work):
        self._work = work

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        [number], error = batch["number"], ""
        try:
            self._work(int(number))
        except RunError as failure:
            # Ray tells of an exception that some code failed, not what it says.
            error = str(failure)
        return {"number": [number], "error": [error]}


def _processors():
    return max(int(ray.cluster_resources().get("CPU", os.cpu_count() or 1)), 1)
