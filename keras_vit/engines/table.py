"""The engines: what each needs, and what it computes."""

import dataclasses
import importlib.util
import os

import keras


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine; the module beside this one of its name has a function `make`.

    It takes a model, the shape of the images and a precision, and returns a function
    from images to outputs, arrays of NumPy.

    Args:
        name: str.
        packages: names of the packages to import.
        of_one_shape: bool, whether it is made for one shape of images alone.
        backends: the backends of Keras from which it converts, by default all.
    """

    name: str
    packages: tuple[str, ...]
    of_one_shape: bool = False
    backends: tuple[str, ...] = ("tensorflow", "jax", "torch")


KERAS = "keras"
CONVERTED = {
    row.name: row
    for row in (
        Engine("litert", ("ai_edge_litert",), True, ("tensorflow",)),
        Engine("onnxruntime", ("onnx", "onnxruntime")),
        Engine("openvino", ("onnx", "openvino")),
    )
}


def check(model, engine):
    """Raises an error unless a model can be computed by an engine here."""
    if engine == KERAS:
        return
    if engine not in CONVERTED:
        raise ValueError(
            f"engine must be one of {', '.join((KERAS, *CONVERTED))}, got {engine!r}."
        )
    row = CONVERTED[engine]
    backend = keras.backend.backend()
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


def threads():
    """Returns how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
