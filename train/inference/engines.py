"""What computes a model's answers: the flags, and the predictor that they describe."""

import sys

from absl import flags

from train.common.errors import RunError

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()
# Those of `keras_vit.Predictor`, here without Keras.
PRECISIONS = ("float32", "bfloat16", "int8")
ENGINES = {
    "auto": PRECISIONS,
    "keras": ("float32", "bfloat16"),
    "litert": ("float32", "int8"),
    "onnxruntime": ("float32",),
    "openvino": ("float32", "bfloat16", "int8"),
}


def define_flags():
    """Defines `--engine` and `--precision`."""
    flags.DEFINE_enum(
        "engine",
        "auto",
        [*ENGINES],
        "What computes: Keras, or a runtime that the model is converted for, which "
        "takes seconds and then is faster on some machines. auto begins with Keras, "
        "and changes to the fastest that is installed once that pays.",
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "What matrices are multiplied in: bfloat16 by keras and openvino, on "
        "processors that have it, and int8 by openvino and litert, faster and less "
        "exact.",
    )
    flags.register_multi_flags_validator(["engine", "precision"], _check)


def _check(given):
    engine, precision = given["engine"], given["precision"]
    if precision in ENGINES[engine]:
        return True
    others = [name for name, row in ENGINES.items() if precision in row]
    raise flags.ValidationError(
        f"{engine} computes in {' or '.join(ENGINES[engine])}, not in {precision}: "
        f"pass --precision=float32, or --engine={' or --engine='.join(others)}."
    )


def suffix(engine, precision):
    """Returns what the name of a folder ends in, empty by default."""
    others = [engine] * (engine != "auto") + [precision] * (precision != "float32")
    return "".join(f"-{other}" for other in others)


def _announce(message):
    print(message, file=sys.stderr)


def predictor(model, batch_size, engine, precision):
    """Returns a `keras_vit.Predictor`.

    Raises:
        RunError: the engine or its precision cannot be had here.
    """
    import keras_vit
    from keras_vit.engines import automatic

    automatic.announce = _announce
    try:
        return keras_vit.Predictor(
            model, batch_size, engine=engine, precision=precision
        )
    except (ValueError, ModuleNotFoundError) as error:
        raise RunError(f"--engine={engine} --precision={precision}: {error}") from error
