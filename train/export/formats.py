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

    `writer` and `loader` are `"module:function"`, see `train.export.runtimes`;
    `packages` are those that they import besides TensorFlow.
    """

    name: str
    writer: str
    loader: str
    packages: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Format:
    """An export format.

    Args:
        name: str, as `--format` takes it.
        help: str, for --help and docs/export.md.
        runtime: `Runtime`.
        file: str, path in the folder of the exports.
        min_agreement: float, the agreement with the Keras model that is required by
            default: less means a broken conversion, not rounding.
        precision: str, the writer's argument; None where it has none.
        options: tuple of str, which of `export`'s options the writer takes.
        is_quantized: bool, whether the writer takes `calibration` and `min_agreement`.
        needs_calibration: bool, whether it cannot do without `calibration`.
    """

    name: str
    help: str
    runtime: Runtime
    file: str
    min_agreement: float
    precision: str | None = None
    options: tuple[str, ...] = ()
    is_quantized: bool = False
    needs_calibration: bool = False


SAVED_MODEL = Runtime(
    "saved_model",
    writer="train.inference.saved_model:write_saved_model",
    loader="train.export.runtimes:saved_model",
)
TFLITE = Runtime(
    "tflite",
    writer="train.export.tflite:write_tflite",
    loader="train.export.runtimes:tflite",
    packages=("ai_edge_litert", "ai_edge_quantizer", "flatbuffers"),
)
ONNX = Runtime(
    "onnx",
    writer="train.export.onnx:write_onnx",
    loader="train.export.runtimes:onnx",
    packages=("onnx", "onnxruntime"),
)
# The disagreement allowed is about twice what rounding alone causes in ViT-Ti/16, whose
# classes are the closest to each other (docs/export.md): none in float16 except ties,
# 2.6% of photos with int8 matrices, 6.6% with fixed scales as well. A broken conversion
# disagrees for 10 to 100%.
FLOAT, DYNAMIC, INT8 = 0.995, 0.95, 0.9
_BATCH = ("dynamic_batch",)
FORMATS = {
    row.name: row
    for row in (
        # TensorFlow Serving loads the folder with the highest number.
        Format(
            name="saved_model",
            help="TensorFlow, TensorFlow Serving (`OUT/saved_model/1`) and Hub",
            runtime=SAVED_MODEL,
            file="saved_model/1",
            min_agreement=FLOAT,
        ),
        Format(
            name="tflite",
            help="LiteRT, float32",
            runtime=TFLITE,
            file="model.tflite",
            min_agreement=FLOAT,
            precision="float32",
            options=_BATCH,
        ),
        Format(
            name="tflite-float16",
            help="weights in float16: half the size",
            runtime=TFLITE,
            file="model-float16.tflite",
            min_agreement=FLOAT,
            precision="float16",
            options=_BATCH,
        ),
        Format(
            name="tflite-dynamic",
            help="all matrices in int8: a quarter of the size, the fastest on a CPU",
            runtime=TFLITE,
            file="model-dynamic.tflite",
            min_agreement=DYNAMIC,
            precision="dynamic",
            options=_BATCH,
            is_quantized=True,
        ),
        Format(
            name="tflite-int8",
            help="fixed scales for accelerators; calibrated on training images",
            runtime=TFLITE,
            file="model-int8.tflite",
            min_agreement=INT8,
            precision="int8",
            options=(*_BATCH, "uint8"),
            is_quantized=True,
            needs_calibration=True,
        ),
        Format(
            name="onnx",
            help="opset 20, standard operators",
            runtime=ONNX,
            file="model.onnx",
            min_agreement=FLOAT,
            precision="float32",
        ),
        Format(
            name="onnx-float16",
            help="weights and products in float16",
            runtime=ONNX,
            file="model-float16.onnx",
            min_agreement=FLOAT,
            precision="float16",
        ),
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
    for option, is_set in options.items():
        if is_set and not any(option in row.options for row in rows):
            takers = [row.name for row in FORMATS.values() if option in row.options]
            raise ValueError(
                f"{option} is an option of {', '.join(takers)}, which is not among the "
                "formats: leave it out, or add one."
            )
    return rows
