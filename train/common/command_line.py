"""What all commands share: start, help text and required packages."""

import contextlib
import functools
import importlib.util
import os
import re
import sys

from absl import app, flags

from keras_vit_start import COMMANDS, styled, typed
from train.common import library_messages, packages
from train.common.errors import Preempted, RunError
from zoo.text import printable

# A command imports this module before it imports Keras.
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_OWN_LOG_LEVEL = _LOG_LEVEL not in os.environ
os.environ.setdefault(_LOG_LEVEL, "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# The exit statuses of shells for commands that SIGPIPE and SIGINT end.
_BROKEN_PIPE, _INTERRUPTED = 141, 130
flags.DEFINE_bool(
    "verbose", False, "Show the messages of TensorFlow and other libraries."
)
# `run` makes the flag one of the command that calls it.
flags.disclaim_key_flags()


def run(main):
    """Runs a command's `main`; its help names the command as it was typed."""
    flags.declare_key_flag("verbose")
    module = sys.modules["__main__"]
    if module.__doc__:
        module.__doc__ = re.sub(
            rf"keras-vit ({'|'.join(COMMANDS)})\b",
            lambda found: typed(found[1]),
            module.__doc__,
        )
    try:
        try:
            app.run(functools.partial(_perform, main), flags_parser=_parsed)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Nothing more can be flushed at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_BROKEN_PIPE)
    except KeyboardInterrupt as stop:
        start = styled("error:", "error", sys.stderr)
        print(f"{start} {stop or 'Interrupted.'}", file=sys.stderr)
        sys.exit(_INTERRUPTED)


def _parsed(argv):
    """Parses flags; after --help the exit status is 0, where absl has 1."""
    try:
        return flags.FLAGS(argv)
    except flags.Error:
        return app.parse_flags_with_usage(argv)
    except SystemExit:
        sys.exit()


def _perform(main, argv):
    """Runs `main` without the messages of libraries, unless --verbose asks for them."""
    if flags.FLAGS["verbose"].value:
        voices = contextlib.nullcontext()
        if _OWN_LOG_LEVEL:
            os.environ[_LOG_LEVEL] = "0"
    else:
        voices = library_messages.hidden()
    with voices:
        try:
            return main(argv)
        except SystemExit as end:
            if not isinstance(end.code, str):
                raise
            start, colon, rest = end.code.partition(":")
            print(styled(start + colon, "error", sys.stderr) + rest, file=sys.stderr)
            sys.exit(1)


def say_next(*steps):
    """Prints the command to type next, and the names of others, in one line.

    Each of `steps` is a sequence of a command's name and its words, str or path-like.
    Commands that are not installed are left out. The line goes to the standard error,
    as it is no result.

    Example:
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     say_next(["evaluate", "runs/digits"], ["publish", "runs/digits"])
        next: keras-vit evaluate runs/digits   (or publish)
    """
    known = [step for step in steps if step[0] in COMMANDS]
    if not known:
        return
    (name, *words), *others = known
    line = styled(printable(typed(name, map(str, words))), "next", sys.stderr)
    more = f"   (or {', '.join(step[0] for step in others)})" if others else ""
    print(f"next: {line}{more}", file=sys.stderr)


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
    except BrokenPipeError:  # Whoever reads has enough.
        sys.exit(_BROKEN_PIPE)
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted; {interrupted}.") from None
