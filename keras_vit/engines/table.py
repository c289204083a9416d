"""The engines: what each needs, and what it computes."""

import dataclasses
import importlib.util
import os

import keras

from zoo.machine import computes_bfloat16, cpu_name


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine; the module beside this one of its name has a function `make`.

    It takes a model, the shape of the images and a precision, and returns a function
    from images to outputs, arrays of NumPy.

    Args:
        name: str.
        precisions: what it computes in, some of `PRECISIONS`.
        packages: names of the packages to import.
        of_one_shape: bool, whether it is made for one shape of images alone.
        backends: the backends of Keras from which it converts, by default all.
        is_automatic: bool, whether "auto" tries it.
    """

    name: str
    precisions: tuple[str, ...]
    packages: tuple[str, ...] = ()
    of_one_shape: bool = False
    backends: tuple[str, ...] = ("tensorflow", "jax", "torch")
    is_automatic: bool = False


AUTO, KERAS = "auto", "keras"
PRECISIONS = ("float32", "bfloat16", "int8")
ENGINES = {
    row.name: row
    for row in (
        Engine(KERAS, ("float32", "bfloat16")),
        Engine(
            "litert",
            ("float32", "int8"),
            ("ai_edge_litert",),
            of_one_shape=True,
            backends=("tensorflow",),
            # Converting takes ten times as long as for others, and the memory.
        ),
        Engine("onnxruntime", ("float32",), ("onnx", "onnxruntime"), is_automatic=True),
        Engine(
            "openvino",
            ("float32", "bfloat16", "int8"),
            ("onnx", "openvino"),
            is_automatic=True,
        ),
    )
}


def check(model, engine, precision):
    """Raises an error unless an engine can compute a model in a precision here."""
    for name, value, known in (
        ("engine", engine, (AUTO, *ENGINES)),
        ("precision", precision, PRECISIONS),
    ):
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(known)}, got {value!r}."
            )
    # It begins with Keras.
    row = ENGINES[KERAS if engine == AUTO else engine]
    backend = keras.backend.backend()
    if precision not in row.precisions:
        others = [one.name for one in ENGINES.values() if precision in one.precisions]
        raise ValueError(
            f"{engine} computes in {' or '.join(row.precisions)}, not in {precision}: "
            f"choose one of these, or engine={' or '.join(map(repr, others))}."
        )
    is_slow = precision == "bfloat16" and not computes_bfloat16()
    if is_slow and (row.packages or is_keras_on_cpu()):
        raise ValueError(
            f"This processor, {cpu_name()}, has no instructions for bfloat16, in which "
            "it would be slower than in float32: choose float32."
        )
    if backend not in row.backends:
        raise ValueError(
            f"{engine} converts models on {' and '.join(row.backends)}, and Keras runs "
            f"on {backend}: choose another engine, or set "
            f"KERAS_BACKEND={row.backends[0]}."
        )
    if row.of_one_shape and None in model.input_shape[1:]:
        raise ValueError(
            f"{engine} takes images of one size, and {model.name} those of shape "
            f"{model.input_shape[1:]}: choose another engine, or pass "
            "keras_vit.at_image_size(model, (height, width))."
        )
    missing = [
        package.replace("_", "-")
        for package in row.packages
        if importlib.util.find_spec(package) is None
    ]
    if missing:
        raise ModuleNotFoundError(
            f"The engine {engine} needs {' and '.join(missing)}, not installed here: "
            f"pip install {' '.join(missing)}."
        )


def fits(model, engine, precision):
    """Returns whether an engine can compute a model in a precision here."""
    try:
        check(model, engine, precision)
    except (ValueError, ModuleNotFoundError):
        return False
    return True


def begins_with(model, engine, precision, jit_compile):
    """Returns the engine; for "auto" without Keras the first that is here.

    Those that are quick to convert for come first.
    """
    if engine != AUTO:
        return engine
    if jit_compile:
        return KERAS
    rows = [row for row in ENGINES.values() if precision in row.precisions]
    names = [row.name for row in sorted(rows, key=lambda row: not row.is_automatic)]
    if KERAS in names or not names:
        return AUTO
    return next((name for name in names if fits(model, name, precision)), names[0])


def is_keras_on_cpu():
    """Returns whether Keras computes on the processor, and not on a GPU or TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return not torch.cuda.is_available()
    devices = keras.distribution.list_devices()
    return all(device.startswith("cpu") for device in devices)


def threads():
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
