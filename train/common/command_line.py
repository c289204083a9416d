"""What all commands share: start, help text and required packages."""

import contextlib
import importlib.util
import os
import re
import sys

from absl import app, flags, logging

from keras_vit_start import COMMANDS, typed
from train.common import packages
from train.common.errors import Preempted, RunError

# A command imports this module before it imports Keras.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def run(main):
    """Runs a command's `main`; its help names the command as it was typed."""
    module = sys.modules["__main__"]
    if module.__doc__:
        module.__doc__ = re.sub(
            rf"keras-vit ({'|'.join(COMMANDS)})\b",
            lambda found: typed(found[1]),
            module.__doc__,
        )
    app.run(main)


def as_typed(name):
    """Returns the command line as it was typed, for reports."""
    return typed(name, sys.argv[1:])


def values(names):
    """Returns the values of flags by name, lists as tuples; `names` has spaces."""
    found = {name: flags.FLAGS[name].value for name in names.split()}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
    }


def need_packages(name, needed):
    """Exits if a package that a command needs, named as imported, is not installed."""
    with exit_on_errors("nothing was done"):
        packages.need(typed(name), needed)


def need_tensorflow(what, hint=""):
    """Exits if Keras has another backend; `what` needs TensorFlow."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        sys.exit(
            f"error: {what} needs TensorFlow, but KERAS_BACKEND is {backend!r}: unset "
            f"it.{hint}"
        )


def need_tensorflow_or_jax(what, hint=""):
    """Like `need_tensorflow`, but accepts the JAX backend if JAX is installed."""
    if os.environ.get("KERAS_BACKEND") != "jax":
        need_tensorflow(what, f" Or set it to jax.{hint}")
    elif importlib.util.find_spec("jax") is None:
        sys.exit(
            "error: KERAS_BACKEND is 'jax', but JAX is not installed: "
            "pip install jax, or unset KERAS_BACKEND."
        )


@contextlib.contextmanager
def exit_on_errors(interrupted):
    """Ends a command with one line for an error, and quietly after SIGTERM.

    `interrupted` says what is left after Ctrl-C.
    """
    try:
        yield
    except Preempted as stop:
        print(stop, file=sys.stderr)
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"error: Interrupted; {interrupted}.")


def quiet_data():
    """Keeps TFDS from logging every file that it opens, unless --verbosity is given."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
