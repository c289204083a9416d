"""What a model can be exported as: a row each."""

import dataclasses

from train.export.packages import LITERT, ONNX, need


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of export.

    Args:
        kind: str, `"saved_model"`, `"tflite"` or `"onnx"`.
        file: str, where it lies in the folder of the exports.
        min_agreement: float, how much of what it answers must be as Keras has it
            unless somebody says otherwise: what is below is broken, not rounded.
        precision: str, as the writer calls it; None where there is but one.
        packages: tuple of str, what writing and running it needs besides TensorFlow,
            as imported.
    """

    kind: str
    file: str
    min_agreement: float
    precision: str | None = None
    packages: tuple[str, ...] = ()

    @property
    def is_quantised(self):
        return self.precision in ("dynamic", "int8")


# The disagreement allowed is about twice what rounding alone makes in ViT-Ti/16, whose
# classes are the closest to each other (docs/export.md): none in float16 but at ties,
# 2.6% of photos with matrices in int8, 6.6% with fixed scales besides. A conversion
# that is broken disagrees for 10 to 100%.
FLOAT, DYNAMIC, INT8 = 0.995, 0.95, 0.9
# TensorFlow Serving takes the largest number among a model's folders.
FORMATS = {
    "saved_model": Format("saved_model", "saved_model/1", FLOAT),
    "tflite": Format("tflite", "model.tflite", FLOAT, "float32", LITERT),
    "tflite-float16": Format(
        "tflite", "model-float16.tflite", FLOAT, "float16", LITERT
    ),
    "tflite-dynamic": Format(
        "tflite", "model-dynamic.tflite", DYNAMIC, "dynamic", LITERT
    ),
    "tflite-int8": Format("tflite", "model-int8.tflite", INT8, "int8", LITERT),
    "onnx": Format("onnx", "model.onnx", FLOAT, "float32", ONNX),
    "onnx-float16": Format("onnx", "model-float16.onnx", FLOAT, "float16", ONNX),
}
ALL = "all"


def chosen(names, *, dynamic_batch=False, uint8=False):
    """Returns the names of formats, each once and in the order of `FORMATS`.

    Args:
        names: sequence of str, `"all"` for all of them.
        dynamic_batch: bool, whether TFLite shall take any number of images at a time.
        uint8: bool, whether full int8 shall take and give uint8.

    Raises:
        ValueError: there are none, one is unknown, or none has the option.

    Example:

    >>> chosen(["onnx", "saved_model", "onnx"])
    ['saved_model', 'onnx']
    """
    unknown = [name for name in names if name != ALL and name not in FORMATS]
    if unknown or not names:
        wrong = f"{', '.join(map(repr, unknown))} is no format" if unknown else None
        raise ValueError(
            f"{wrong or 'No format is given'}: choose from {', '.join(FORMATS)}, "
            f"separated by commas, or {ALL}."
        )
    names = [name for name in FORMATS if name in names or ALL in names]
    if dynamic_batch and all(FORMATS[name].kind != "tflite" for name in names):
        raise ValueError(
            "dynamic_batch is of TFLite, and none is asked for: the other formats take "
            "any number of images in any case."
        )
    if uint8 and "tflite-int8" not in names:
        raise ValueError("uint8 is of tflite-int8, which is not asked for.")
    return names


def need_packages(names):
    """Makes sure that what some formats need is installed.

    Args:
        names: iterable of str.

    Raises:
        RunError: something is not.
    """
    for name in names:
        need(name, FORMATS[name].packages, hint=", or leave it out")
