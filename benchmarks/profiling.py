"""Traces that TensorBoard shows."""

import contextlib
import os
import pathlib

from benchmarks.contest import Contender, tell
from benchmarks.process import Worker, WorkerError

STEPS = 5
BACKENDS = ("tensorflow", "jax")


def profile(contender, folder):
    """Runs a contender under its backend's profiler and says how to see the trace."""
    backend = contender.backend
    if backend not in BACKENDS:
        raise ValueError(
            f"--profile traces {' and '.join(BACKENDS)}, and {contender.name} runs on "
            f"{backend}: put another first."
        )
    tell(f"profiling {contender.name}")
    traced = Contender(
        name=contender.name,
        job="benchmarks.profiling:traced",
        settings={
            "job": contender.job,
            "settings": contender.settings,
            "folder": os.path.abspath(folder),
        },
        imports=contender.imports,
        backend=contender.backend,
        warm_up=0,
    )
    with Worker(traced, pathlib.Path(folder) / "worker.log") as worker:
        try:
            worker.ready()
            worker.run(1)
        except WorkerError as error:
            raise ValueError(f"Profiling {contender.name}: {error}") from error
    print(
        f"A trace of {STEPS} steps is written. To see it in the Profile tab:\n"
        "pip install tensorboard tensorboard-plugin-profile\n"
        f"tensorboard --logdir {folder}"
    )


def traced(job, settings, folder):
    """The job whose step is a few steps of another under the profiler."""
    from benchmarks.worker import load

    step = load(job)(**settings)
    # Compiled before the trace begins.
    step()

    def run():
        with _tracer(folder):
            for _ in range(STEPS):
                step()

    return run


@contextlib.contextmanager
def _tracer(folder):
    if os.environ["KERAS_BACKEND"] == "jax":
        import jax

        with jax.profiler.trace(folder):
            yield
        return
    import tensorflow as tf

    with tf.profiler.experimental.Profile(folder):
        yield
