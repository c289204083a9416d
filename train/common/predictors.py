"""The flags `--engine` and `--precision`, and the predictor that they describe."""

import sys
from typing import TYPE_CHECKING

from absl import flags

from train.common.errors import RunError
from zoo.runtimes import AUTO, PRECISIONS, RUNTIMES, check_choice

if TYPE_CHECKING:
    import keras

    import keras_vit

# Flags belong to the command that defines them, in its --help too.
flags.disclaim_key_flags()


def define_flags() -> None:
    """Defines `--engine` and `--precision`."""
    flags.DEFINE_enum(
        "engine",
        AUTO,
        [AUTO, *RUNTIMES],
        "What computes: Keras, or a runtime that the model is converted for, which "
        "takes seconds and then is faster on some machines. auto begins with Keras, "
        "in int8 with OpenVINO, and changes to the fastest that is installed once that "
        "pays.",
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "What matrices are multiplied in: bfloat16 by keras and openvino, on "
        "processors that have it, and int8 by openvino, openvino_bfloat16 and litert, "
        "faster and less exact.",
    )
    flags.register_multi_flags_validator(["engine", "precision"], _check)


def _check(choices):
    try:
        check_choice(**choices)
    except ValueError as error:
        raise flags.ValidationError(str(error)) from error
    return True


def suffix(engine: str, precision: str) -> str:
    """Returns a suffix for names of folders, empty for the defaults."""
    others = [engine] * (engine != AUTO) + [precision] * (precision != "float32")
    return "".join(f"-{other}" for other in others)


def predictor(
    model: "keras.Model", batch_size: int, engine: str, precision: str
) -> "keras_vit.Predictor":
    """Returns a predictor, which says when it converts the model.

    A `RunError` says that the engine or its precision is not available here.
    """
    import keras_vit

    def announce(message: str) -> None:
        print(message, file=sys.stderr)

    try:
        return keras_vit.Predictor(
            model, batch_size, engine=engine, precision=precision, announce=announce
        )
    except (ValueError, ModuleNotFoundError) as error:
        raise RunError(f"--engine={engine} --precision={precision}: {error}") from error
