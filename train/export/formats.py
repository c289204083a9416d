"""The export formats: one row each, read by flags, checks, help, report and tests.

A new format is a row of `FORMATS`. A new runtime is a `Runtime` as well: a function
that writes its files, one that loads them, and `templates/NAME.md.jinja`, which shows
in the report how to load them.
"""

import dataclasses

ALL = "all"


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A library that runs exported files.

    `file` is the path in the folder of the exports, with `{}` for the precision;
    `writer` and `loader` are `"module:function"`, see `train.export.runtimes`;
    `options` are arguments of the writer, and `packages` what both import besides
    TensorFlow.
    """

    name: str
    file: str
    writer: str
    loader: str
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


SAVED_MODEL = Runtime(
    "saved_model",
    # TensorFlow Serving loads the folder with the highest number.
    file="saved_model/1",
    writer="train.inference.saved_model:write_saved_model",
    loader="train.export.runtimes:saved_model",
)
TFLITE = Runtime(
    "tflite",
    file="model{}.tflite",
    writer="train.export.tflite:write_tflite",
    loader="train.export.runtimes:tflite",
    options=("precision", "dynamic_batch"),
    packages=("ai_edge_litert", "ai_edge_quantizer", "flatbuffers"),
)
ONNX = Runtime(
    "onnx",
    file="model{}.onnx",
    writer="train.export.onnx:write_onnx",
    loader="train.export.runtimes:onnx",
    options=("precision",),
    packages=("onnx", "onnxruntime"),
)
# The disagreement allowed is about twice what rounding alone causes in ViT-Ti/16, whose
# classes are the closest to each other (docs/export.md): none in float16 except ties,
# 2.6% of photos with int8 matrices, 6.6% with fixed scales as well. A broken conversion
# disagrees for 10 to 100%.
FLOAT, DYNAMIC, INT8 = 0.995, 0.95, 0.9
_QUANTIZED = ("calibration", "min_agreement")
# Those that users set, of formats that take them.
OPTIONS = ("dynamic_batch", "uint8")


@dataclasses.dataclass(frozen=True)
class Format:
    """An export format.

    `name` is for `--format`, `help` for --help and docs/export.md. `min_agreement` is
    the agreement with the Keras model that is required by default: less means a broken
    conversion, not rounding. `options` are more arguments of the runtime's writer.
    """

    name: str
    help: str
    runtime: Runtime
    precision: str = "float32"
    min_agreement: float = FLOAT
    options: tuple[str, ...] = ()
    needs_calibration: bool = False

    @property
    def file(self):
        """The path in the folder of the exports."""
        suffix = "" if self.precision == "float32" else f"-{self.precision}"
        return self.runtime.file.format(suffix)

    @property
    def takes(self):
        """The arguments of the writer besides model, path and class names."""
        return (*self.runtime.options, *self.options)

    @property
    def is_quantized(self):
        """Whether matrices are in int8 where `min_agreement` allows it."""
        return "min_agreement" in self.options


FORMATS = {
    row.name: row
    for row in (
        Format(
            "saved_model",
            "TensorFlow, TensorFlow Serving (`OUT/saved_model/1`) and Hub",
            SAVED_MODEL,
        ),
        Format("tflite", "LiteRT, float32", TFLITE),
        Format(
            "tflite-float16", "weights in float16: half the size", TFLITE, "float16"
        ),
        Format(
            "tflite-dynamic",
            "all matrices in int8: a quarter of the size, the fastest on a CPU",
            TFLITE,
            "dynamic",
            min_agreement=DYNAMIC,
            options=_QUANTIZED,
        ),
        Format(
            "tflite-int8",
            "fixed scales for accelerators; calibrated on training images",
            TFLITE,
            "int8",
            min_agreement=INT8,
            options=(*_QUANTIZED, "uint8"),
            needs_calibration=True,
        ),
        Format("onnx", "opset 20, standard operators", ONNX),
        Format("onnx-float16", "weights and products in float16", ONNX, "float16"),
    )
}


def select(names, **options):
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
