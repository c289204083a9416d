"""The runtimes that compute a Keras model: what each needs, and what it computes."""

import dataclasses
from collections.abc import Mapping
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
        saves: {precision: share of the time that it is likely to save}, beside the
            runtime that "auto" begins with; "auto" does not try it in others.
        seconds: (float, float), of a conversion, and more per weight.
        memory: float, what a conversion takes, in copies of the float32 weights.
        needs_bfloat16: bool, whether it is for processors with instructions for it.
    """

    precisions: tuple[str, ...]
    packages: tuple[str, ...] = ()
    of_one_shape: bool = False
    backends: tuple[str, ...] = ("tensorflow", "jax", "torch")
    saves: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seconds: tuple[float, float] = (0.0, 0.0)
    memory: float = 0.0
    needs_bfloat16: bool = False

    def conversion_seconds(self, weights: int) -> float:
        """Returns about how many seconds the conversion of a model takes."""
        fixed, each = self.seconds
        return fixed + each * weights


# A conversion by way of ONNX: seconds, and copies of the weights in memory.
_ONNX_SECONDS, _ONNX_MEMORY = (1.0, 5e-8), 4.0

RUNTIMES = {
    KERAS: Runtime(("float32", "bfloat16")),
    "litert": Runtime(
        ("float32", "int8"),
        ("ai_edge_litert",),
        of_one_shape=True,
        backends=("tensorflow",),
        # In float32 it is hardly faster than OpenVINO.
        saves={"int8": 0.1},
        seconds=(4.0, 2e-7),
        memory=8.0,
    ),
    "onnxruntime": Runtime(
        ("float32",),
        ("onnx", "onnxruntime"),
        saves={"float32": 0.05},
        seconds=_ONNX_SECONDS,
        memory=_ONNX_MEMORY,
    ),
    "openvino": Runtime(
        PRECISIONS,
        ("onnx", "openvino"),
        saves={"float32": 0.1, "bfloat16": 0.1},
        seconds=_ONNX_SECONDS,
        memory=_ONNX_MEMORY,
    ),
    "openvino_bfloat16": Runtime(
        ("int8",),
        ("onnx", "openvino"),
        saves={"int8": 0.1},
        seconds=_ONNX_SECONDS,
        memory=_ONNX_MEMORY,
        needs_bfloat16=True,
    ),
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
    """Returns the runtimes that compute in a precision, the quickest to begin first."""
    rows = [name for name, row in RUNTIMES.items() if precision in row.precisions]
    return sorted(rows, key=lambda name: RUNTIMES[name].seconds)


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
