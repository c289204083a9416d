"""What the commands share: the flags of the data, and what they need to run."""

import importlib.util
import os
import re
import sys

from absl import app, flags, logging

from keras_vit_start import COMMANDS, typed
from train.common import packages
from train.common.errors import RunError

# The flags are those of the command that asks for them, in its --help too.
flags.disclaim_key_flags()

_DATA = ("tensorflow", "PIL")
_TRAINING = (*_DATA, "jinja2", "matplotlib", "scipy", "sklearn", "tensorboard")
# What each command imports at some time, beside what some data and formats need.
_NEEDED = {
    "finetune": _TRAINING,
    "pretrain": _TRAINING,
    "masked_patches": (*_DATA, "matplotlib", "tensorboard"),
    "study": (*_TRAINING, "yaml"),
    "evaluate": (*_DATA, "matplotlib", "scipy", "sklearn", "yaml"),
    "few_shot": (*_DATA, "yaml"),
    "compare": _DATA,
    "explain": (*_DATA, "jinja2", "matplotlib", "scipy", "yaml"),
    "export": (*_DATA, "scipy", "yaml"),
    "publish": (*_DATA, "yaml"),
}


def run(main):
    """Runs a command; its help names it as this process was started.

    Args:
        main: function of the arguments that are no flags.
    """
    module = sys.modules["__main__"]
    if module.__doc__:
        module.__doc__ = re.sub(
            rf"keras-vit ({'|'.join(COMMANDS)})\b",
            lambda found: typed(found[1]),
            module.__doc__,
        )
    app.run(main)


def as_typed(name):
    """Returns the line that was typed, for the report.

    Args:
        name: str, of the command.
    """
    return typed(name, sys.argv[1:])


def need_packages(name, more=()):
    """Ends a command where a package that it needs is not installed.

    Args:
        name: str, of the command.
        more: iterable of str, packages for what it was asked to do, as imported.
    """
    try:
        packages.need(typed(name), (*_NEEDED[name], *more))
    except RunError as error:
        sys.exit(f"error: {error}")


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
            "pip install jax, or unset KERAS_BACKEND."
        )


def quiet_data():
    """Keeps TFDS from telling every file that it opens, unless asked for."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
