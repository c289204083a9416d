"""Predictions on Beam: a model handler for `RunInference`, and the command's runner."""

import os
import re
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler
from apache_beam.options.pipeline_options import PipelineOptions

from train.common.errors import LibraryError, RunError, first_line
from train.predict.part_work import PartWork
from train.predict.photo_predictor import PhotoPredictor

# How often it is seen which parts are written, and how long the end may take.
_SECONDS, _LAST_SECONDS = 1.0, 30.0
# Beam passes on the text of an error alone, in which this is around ours.
_MARK = "keras-vit: "


class PhotoHandler(ModelHandler[str | bytes, dict, PhotoPredictor]):
    """Answers photos, paths, URLs or bytes, in `RunInference`.

    For photos with keys, put it into a `KeyedModelHandler`. It gives a dict for each,
    as a call of the predictor does.

    Args:
        predictor: `PhotoPredictor`.
        batch_size: int, photos at a time.

    Example:
        >>> handler = KeyedModelHandler(PhotoHandler(predictor))  # doctest: +SKIP
        >>> keyed_photos | RunInference(handler)  # doctest: +SKIP
    """

    def __init__(self, predictor: PhotoPredictor, *, batch_size: int = 64):
        super().__init__()
        self._predictor, self._batch_size = predictor, batch_size

    def batch_elements_kwargs(self) -> dict[str, Any]:
        return {"max_batch_size": self._batch_size}

    def load_model(self) -> PhotoPredictor:
        return self._predictor.load()

    def run_inference(
        self,
        batch: Sequence[str | bytes],
        model: PhotoPredictor,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[dict]:
        return model(batch)

    def get_metrics_namespace(self) -> str:
        return "keras_vit"


class _Work(beam.DoFn):
    """Does the work on parts."""

    def __init__(self, work):
        self._work = work

    def process(self, number: int) -> Iterator[int]:
        try:
            yield self._work(number)
        except RunError as error:
            raise RuntimeError(f"{_MARK}{error}{_MARK}") from error


def run(work: PartWork, numbers: Sequence[int], workers: int | None) -> Generator[int]:
    """Yields numbers of parts as workers have done the work on them."""
    if not numbers:
        return
    workers = min(workers or os.cpu_count() or 1, len(numbers))
    own_work = work.shared_by(workers)
    options = PipelineOptions(
        runner="FnApiRunner",
        direct_num_workers=workers,
        direct_running_mode="multi_processing",
    )
    failures: list[BaseException | None] = []
    left = set(numbers)

    def pipeline() -> None:
        try:
            with beam.Pipeline(options=options) as steps:
                parts = steps | beam.Create(numbers) | beam.Reshuffle()
                _ = parts | beam.ParDo(_Work(own_work))
        except Exception as error:
            failures.append(error)

    def look(failed: threading.ExceptHookArgs) -> None:
        # This runner waits forever for a worker that was killed, which its thread sees.
        if "Worker subprocess exited" in str(failed.exc_value):
            failures.append(failed.exc_value)
        else:
            hook(failed)

    hook, threading.excepthook = threading.excepthook, look
    try:
        thread = threading.Thread(target=pipeline, daemon=True)
        thread.start()
        while left:
            thread.join(_SECONDS)
            is_over = failures or not thread.is_alive()
            written = sorted(left & work.folder.written())
            left.difference_update(written)
            yield from written
            if is_over and left:
                raise _explained(" ".join(map(str, failures)))
        # All is written; its processes end.
        thread.join(_LAST_SECONDS)
    finally:
        threading.excepthook = hook


def _explained(text):
    if found := re.search(f"{_MARK}(.*?){_MARK}", text, re.DOTALL):
        return RunError(found[1])
    reason = first_line(text or "its pipeline ended early")
    return LibraryError(
        f"Beam failed ({reason}): the same command goes on with what is not written, "
        "and with --verbose shows what Beam prints."
    )
