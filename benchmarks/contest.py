"""Contenders that run in turn, so that all of them meet the same noise."""

import contextlib
import dataclasses
import math
import pathlib
import re
import sys
import time

from benchmarks.process import Worker, WorkerError
from benchmarks.summary import summarize

# The first product of an MLP of ViT-B/16 on eight images of 224 x 224.
ROWS, INNER, COLUMNS = 1576, 768, 3072
# More weights than a cache holds, as in a model.
MATRICES = 12
TURN_SECONDS = 0.5
MOST_REPEATS = 50
# Its step takes long enough to be sure of.
CALIBRATION_REPEATS = 2


@dataclasses.dataclass(frozen=True)
class Contender:
    """One side of a comparison; `benchmarks` shows a whole one.

    Args:
        name: str, unique in a contest.
        job: str, "package.module:function".
        imports: names of the packages to import before the job.
        backend: str, the Keras backend it runs on.
        settings: dict for JSON, the function's keyword arguments.
        items: int, images (or files, ...) that one step handles.
        operations: float, floating-point operations of one step, or None.
        warm_up: int, unmeasured steps at first; unless 0, each turn begins with one.
        ours: bool.
    """

    name: str
    job: str
    imports: tuple[str, ...] = ()
    backend: str = "tensorflow"
    settings: dict = dataclasses.field(default_factory=dict)
    items: int = 1
    operations: float | None = None
    warm_up: int = 2
    ours: bool = False


CALIBRATION = Contender(
    name="matrix product",
    job="benchmarks.contest:matrix_product",
    operations=2 * ROWS * INNER * COLUMNS * MATRICES,
)


class _Entry:
    """A contender in the ring: its worker and what was measured."""

    def __init__(self, contender, worker):
        self.contender = contender
        self.worker = worker
        self.error = None
        self.seconds = []
        self.cpu_seconds = []
        self.peak_bytes = None

    def try_to(self, action, *arguments):
        """Calls a method of the worker; an error puts the contender out."""
        try:
            return getattr(self.worker, action)(*arguments)
        except WorkerError as error:
            self.error = str(error)
            self.seconds, self.cpu_seconds = [], []
            return None

    def take_turn(self, repeats):
        if self.contender is CALIBRATION:
            repeats = CALIBRATION_REPEATS
        measured = self.try_to("run", repeats)
        if measured is not None:
            self.seconds.append(measured[0])
            self.cpu_seconds.append(measured[1])

    def record(self):
        """Returns what was measured, for `summarize`."""
        return {
            "name": self.contender.name,
            "ours": self.contender.ours,
            "items": self.contender.items,
            "operations": self.contender.operations,
            "error": self.error,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_bytes": self.peak_bytes,
            **self.worker.facts,
        }


def contest(
    contenders, *, rounds, log_dir, repeats=None, reference=None, calibrate=True
):
    """Sets all contenders up, then runs them in turn.

    In a round each contender in turn takes `repeats` steps; the next round starts with
    the next contender. The machine's own speed at matrix products takes its turn too.

    Args:
        contenders: sequence of `Contender`.
        rounds: int.
        log_dir: path of the folder for what the workers print.
        repeats: int, by default as many as take the fastest contender half a second.
        reference: str, the name of the contender that ratios refer to; where there is
            none, or it failed, the first that is not ours, or else the first.
        calibrate: bool, whether to measure the matrix product.

    Returns:
        Dict for JSON, as of `benchmarks.summary.summarize`.
    """
    log_dir = pathlib.Path(log_dir)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        entries = []
        for contender in [*contenders, *([CALIBRATION] if calibrate else [])]:
            tell(f"setting up {contender.name}")
            log = log_dir / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', contender.name)}.log"
            entry = _Entry(contender, stack.enter_context(Worker(contender, log)))
            entries.append(entry)
            entry.try_to("ready")
        if repeats is None:
            repeats = _repeats(entries)
        tell(
            f"set up in {time.perf_counter() - started:.0f} s: {rounds} rounds of "
            f"{repeats} repeats"
        )

        started = time.perf_counter()
        for index in range(rounds):
            for entry in rotated(entries, index):
                if entry.error is None:
                    entry.take_turn(repeats)
            left = (time.perf_counter() - started) / (index + 1) * (rounds - index - 1)
            tell(f"round {index + 1} of {rounds}, {left:.0f} s left")

        for entry in entries:
            if entry.error is None:
                entry.peak_bytes = entry.try_to("close")
    records = [entry.record() for entry in entries]
    calibration = records.pop() if calibrate else None
    return {
        "rounds": rounds,
        "repeats": repeats,
        **summarize(records, reference, calibration),
    }


def row(table, flag, name, imports, backend="tensorflow"):
    """Returns a decorator that puts a job into a table, as what `flag` names."""

    def register(job):
        path = f"{job.__module__}:{job.__name__}"
        table[flag] = Contender(name, path, imports, backend)
        return job

    return register


def choose(table, names, flag):
    """Returns the rows of a table that a flag names."""
    if names == ["all"]:
        return list(table.values())
    for name in names:
        if name not in table:
            raise ValueError(
                f"--{flag} has no {name!r}: name some of {','.join(table)}, or all."
            )
    return [table[name] for name in dict.fromkeys(names)]


def rotated(entries, index):
    """Returns the entries, beginning with number `index` modulo their count."""
    first = index % len(entries)
    return [*entries[first:], *entries[:first]]


def tell(line):
    """Prints a line of progress."""
    print(line, file=sys.stderr, flush=True)


def _repeats(entries):
    turns = [
        entry.try_to("run", 1)
        for entry in entries
        if entry.error is None and entry.contender is not CALIBRATION
    ]
    seconds = [wall for turn in turns if turn is not None for wall in turn[0]]
    fastest = min(seconds, default=TURN_SECONDS)
    return min(math.ceil(TURN_SECONDS / max(fastest, 1e-9)), MOST_REPEATS)


def matrix_product(matrices=MATRICES):
    """Returns the step: a dozen products, by TensorFlow."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    rows = random.standard_normal((ROWS, INNER), "float32")
    weights = [
        random.standard_normal((INNER, COLUMNS), "float32") for _ in range(matrices)
    ]
    rows = tf.constant(rows)
    weights = [tf.constant(weight) for weight in weights]

    @tf.function
    def products(rows, weights):
        # One number of each is enough to need the whole product.
        return [tf.matmul(rows, weight)[0, 0] for weight in weights]

    return lambda: [number.numpy() for number in products(rows, weights)]
