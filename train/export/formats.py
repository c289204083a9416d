"""The export formats: one row each, read by flags, checks, help, report and tests.

A new format is a row of `FORMATS`. A new runtime is a `Runtime` as well: a function
that writes its files, a module in `train.models.exports` that loads them, and
`templates/NAME.md.jinja`, which shows in the report how to load them.
"""

import dataclasses
from collections.abc import Sequence

ALL = "all"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A library that runs exported files.

    `file` is the path in the folder of the exports, with `{}` for the precision;
    `writer` is `"module:function"`, and `packages` what both functions import besides
    TensorFlow. `options` are arguments of the writer, but for `"any_size"`: that it can
    be given a model for images of any size.
    """

    name: str
    file: str
    writer: str
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


SAVED_MODEL = Runtime(
    "saved_model",
    # TensorFlow Serving loads the folder with the highest number.
    file="saved_model/1",
    writer="train.models.exports.saved_model:write_saved_model",
    options=("any_size",),
)
TFLITE = Runtime(
    "tflite",
    file="model{}.tflite",
    writer="train.export.tflite:write_tflite",
    options=("precision", "dynamic_batch"),
    packages=("ai_edge_litert", "ai_edge_quantizer", "flatbuffers"),
)
ONNX = Runtime(
    "onnx",
    file="model{}.onnx",
    writer="train.export.onnx:write_onnx",
    options=("precision", "any_size"),
    packages=("onnx", "onnxruntime"),
)
# The disagreement allowed is about twice what rounding alone causes in ViT-Ti/16, whose
# classes are the closest to each other (docs/export.md): none in float16 except ties,
# 2.0% of photos with int8 matrices, 4.4% with fixed scales as well. A broken conversion
# disagrees for 10 to 100%.
FLOAT, DYNAMIC, INT8 = 0.995, 0.95, 0.9
_QUANTIZED = ("calibration", "min_agreement")
# Users can set these options where a format takes them.
OPTIONS = ("dynamic_batch", "uint8", "any_size")


@dataclasses.dataclass(frozen=True)
class Format:
    """An export format.

    `help` is for --help and docs/export.md. `min_agreement` is the agreement with the
    Keras model that is required by default: less means a broken conversion, not
    rounding. `options` are more arguments of the runtime's writer.
    """

    runtime: Runtime
    help: str
    precision: str = "float32"
    min_agreement: float = FLOAT
    options: tuple[str, ...] = ()

    @property
    def _suffix(self):
        return "" if self.precision == "float32" else f"-{self.precision}"

    @property
    def name(self) -> str:
        """The name for `--format`."""
        return self.runtime.name + self._suffix

    @property
    def file(self) -> str:
        """The path in the folder of the exports."""
        return self.runtime.file.format(self._suffix)

    @property
    def takes(self) -> tuple[str, ...]:
        """The options: arguments of the writer, and the model's `any_size`."""
        return (*self.runtime.options, *self.options)

    @property
    def is_quantized(self) -> bool:
        """Whether matrices are in int8 where `min_agreement` allows it."""
        return "min_agreement" in self.options

    @property
    def needs_calibration(self) -> bool:
        """Whether scales are fixed, which takes images."""
        return self.precision == "int8"


_ROWS = (
    Format(SAVED_MODEL, "TensorFlow, TensorFlow Serving (`OUT/saved_model/1`) and Hub"),
    Format(TFLITE, "LiteRT, float32"),
    Format(TFLITE, "weights in float16: half the size", "float16"),
    Format(
        TFLITE,
        "all matrices in int8: a quarter of the size, the fastest on a CPU",
        "dynamic",
        DYNAMIC,
        _QUANTIZED,
    ),
    Format(
        TFLITE,
        "fixed scales for accelerators; calibrated on training images",
        "int8",
        INT8,
        (*_QUANTIZED, "uint8"),
    ),
    Format(ONNX, "opset 20, standard operators"),
    Format(ONNX, "weights and products in float16", "float16"),
)
FORMATS = {row.name: row for row in _ROWS}


def select(names: Sequence[str], **options: bool) -> list[Format]:
    """Returns the formats of some names, each once and in the order of `FORMATS`.

    A ValueError says that there is no name, that one is unknown, or that none of the
    formats takes one of the options that are true.

    >>> [row.name for row in select(["onnx", "saved_model", "onnx"])]
    ['saved_model', 'onnx']
    """
    unknown = [name for name in names if name != ALL and name not in FORMATS]
    if unknown or not names:
        wrong = f"{', '.join(map(repr, unknown))} is not a format" if unknown else None
        raise ValueError(
            f"{wrong or 'No format is given'}: choose from {', '.join(FORMATS)}, "
            f"separated by commas, or {ALL}."
        )
    rows = [row for row in FORMATS.values() if row.name in names or ALL in names]
    for option in (name for name, is_set in options.items() if is_set):
        if not any(option in row.takes for row in rows):
            takers = [row.name for row in FORMATS.values() if option in row.takes]
            raise ValueError(
                f"{option} is an option of {', '.join(takers)}, which is not among the "
                "formats: leave it out, or add one."
            )
    return rows
