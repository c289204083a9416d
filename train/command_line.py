"""What the commands share: the flags of the data, and what they need to run."""

import importlib.util
import os
import sys

from absl import flags, logging

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()


def define_data(otherwise=""):
    """Defines the flags of a data set.

    Args:
        otherwise: str, what holds where `--dataset` is not given; it must be given
            where that is empty.
    """
    flags.DEFINE_string(
        "dataset",
        None,
        "digits, a TFDS name such as cifar100, vtab/TASK or vtab-full/TASK, a folder "
        "class/*.jpg or {train,test}/class/*.jpg, a CSV file path,label,split, or "
        "TFRecord files"
        f"{otherwise and '; '}{otherwise}.",
        required=not otherwise,
    )
    flags.DEFINE_string(
        "data_dir",
        None,
        "Where TFDS data sets are or go; TFDS's own default if not given.",
    )
    flags.DEFINE_boolean(
        "skip_corrupt",
        False,
        "Look at all images first, leave out those that cannot be read, and name them.",
    )


def define_image_size():
    """Defines the flags that say how images come to the size of a given model."""
    flags.DEFINE_integer(
        "image_size",
        None,
        "Pixels a side, to which the position embeddings are resized; that of the "
        "model if not given.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "central_crop",
        False,
        "Keep the aspect of the images and cut out 7/8 of the shorter side, as "
        "big_vision does; the released code squashes them.",
    )


def need_tensorflow(what, hint=""):
    """Ends the command where Keras has another backend.

    Args:
        what: str, what needs TensorFlow.
        hint: str, further words.
    """
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        sys.exit(
            f"error: {what} needs TensorFlow, but KERAS_BACKEND is "
            f"{os.environ['KERAS_BACKEND']!r}: unset it.{hint}"
        )


def need_tensorflow_or_jax(what, hint=""):
    """Ends the command where Keras has another backend, or JAX is missing.

    Args:
        what: str, what needs TensorFlow or JAX.
        hint: str, further words.
    """
    if os.environ["KERAS_BACKEND"] != "jax":
        need_tensorflow(what, f" Or set it to jax.{hint}")
    elif importlib.util.find_spec("jax") is None:
        sys.exit(
            "error: KERAS_BACKEND is 'jax', but JAX is not installed: "
            "pip install 'keras_vit[jax]', or unset KERAS_BACKEND."
        )


def quiet_data():
    """Keeps TFDS from telling every file that it opens, unless asked for."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
