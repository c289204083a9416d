"""The runtimes that compute a Keras model: what each needs, and what it computes."""

import dataclasses
from typing import Any

AUTO, KERAS = "auto", "keras"
PRECISIONS = ("float32", "bfloat16", "int8")


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime; the module of its name in `keras_vit.runtimes` converts models for it.

    Args:
        precisions: what it computes in, some of `PRECISIONS`.
        packages: names of the packages to import.
        of_one_shape: bool, whether it is made for one shape of images alone.
        backends: the backends of Keras from which it converts, by default all.
        is_automatic: bool, whether "auto" tries it.
    """

    precisions: tuple[str, ...]
    packages: tuple[str, ...] = ()
    of_one_shape: bool = False
    backends: tuple[str, ...] = ("tensorflow", "jax", "torch")
    is_automatic: bool = False


RUNTIMES = {
    KERAS: Runtime(("float32", "bfloat16")),
    "litert": Runtime(
        ("float32", "int8"),
        ("ai_edge_litert",),
        of_one_shape=True,
        backends=("tensorflow",),
        # Converting takes ten times as long as for others, and the memory.
    ),
    "onnxruntime": Runtime(("float32",), ("onnx", "onnxruntime"), is_automatic=True),
    "openvino": Runtime(PRECISIONS, ("onnx", "openvino"), is_automatic=True),
}


def check_choice(engine: str, precision: str) -> None:
    """Raises a ValueError unless an engine or "auto" exists and has a precision."""
    for name, value, known in (
        ("engine", engine, (AUTO, *RUNTIMES)),
        ("precision", precision, PRECISIONS),
    ):
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(known)}, got {value!r}."
            )
    if engine != AUTO and precision not in RUNTIMES[engine].precisions:
        raise ValueError(
            f"{engine} computes in {' or '.join(RUNTIMES[engine].precisions)}, not in "
            f"{precision}: choose one of these, or "
            f"{' or '.join(f'engine={name!r}' for name in computing(precision))}."
        )


def computing(precision: str) -> list[str]:
    """Returns the runtimes that compute in a precision, those of "auto" first."""
    rows = [name for name, row in RUNTIMES.items() if precision in row.precisions]
    return sorted(rows, key=lambda name: not RUNTIMES[name].is_automatic)


def onnx_session(path: str, threads: int = 0) -> Any:
    """Returns the `onnxruntime.InferenceSession` of a file, on the processor.

    With `threads` of 0 the runtime chooses how many.
    """
    import onnxruntime

    # On some systems it writes files of what it is used for.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
