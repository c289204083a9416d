"""What computes a model's answers: the flags, and the predictor that they describe."""

from absl import flags

from train.common.errors import RunError

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()
# Those of `keras_vit.Predictor`, here without Keras.
ENGINES = ("auto", "keras", "litert", "onnxruntime", "openvino")
PRECISIONS = ("float32", "bfloat16", "int8")


def define_flags():
    """Defines `--engine` and `--precision`."""
    flags.DEFINE_enum(
        "engine",
        "auto",
        ENGINES,
        "What computes: Keras, or a runtime that the model is converted for, which "
        "takes seconds and then is faster on some machines. auto begins with Keras, "
        "and changes to the fastest that is installed once that pays.",
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "What matrices are multiplied in: bfloat16 by keras and openvino, on "
        "processors that have it, and int8 by litert, faster and less exact.",
    )


def predictor(model, batch_size, engine, precision):
    """Returns a `keras_vit.Predictor`.

    Raises:
        RunError: the engine or its precision cannot be had here.
    """
    import keras_vit

    try:
        return keras_vit.Predictor(
            model, batch_size, engine=engine, precision=precision
        )
    except (ValueError, ModuleNotFoundError) as error:
        raise RunError(f"--engine={engine} --precision={precision}: {error}") from error
