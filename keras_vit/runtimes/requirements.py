"""Whether a runtime can compute a model here."""

import importlib.util

import keras

from zoo.common.machine import computes_bfloat16, cpu_name
from zoo.runtimes import AUTO, KERAS, RUNTIMES, computing


def check(model: keras.Model, engine: str, precision: str) -> None:
    """Raises an error unless an engine can compute a model in a precision here."""
    # It begins with Keras.
    row = RUNTIMES[KERAS if engine == AUTO else engine]
    backend = keras.backend.backend()
    is_half = precision == "bfloat16" or row.needs_bfloat16
    is_slow = is_half and not computes_bfloat16()
    if is_slow and (row.packages or is_keras_on_cpu()):
        raise ValueError(
            f"This processor, {cpu_name()}, has no instructions for bfloat16, in which "
            "it would be slower than in float32: choose another engine or precision."
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


def fits(model: keras.Model, engine: str, precision: str) -> bool:
    """Returns whether an engine can compute a model in a precision here."""
    try:
        check(model, engine, precision)
    except (ValueError, ModuleNotFoundError):
        return False
    return True


def begins_with(
    model: keras.Model, engine: str, precision: str, jit_compile: bool
) -> str:
    """Returns the engine; for "auto" without Keras one of those that are needed."""
    if engine != AUTO:
        return engine
    if jit_compile:
        return KERAS
    names = computing(precision)
    return AUTO if any(fits(model, name, precision) for name in names) else names[0]


def is_keras_on_cpu() -> bool:
    """Returns whether Keras computes on the processor, and not on a GPU or TPU."""
    if keras.backend.backend() == "torch":
        import torch

        return not torch.cuda.is_available()
    devices = keras.distribution.list_devices()
    return all(device.startswith("cpu") for device in devices)
