"""What all commands share: start, help text and required packages."""

import contextlib
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from absl import app, flags

from keras_vit_start import COMMANDS, styled, typed
from train.common import (
    files,
    flag_help,
    flag_names,
    freed_memory,
    library_messages,
    packages,
)
from train.common.errors import Preempted, RunError
from zoo.common.safe_text import printable

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


def run(
    main: Callable[[list[str]], Any],
    describe: Callable[[list[str]], None] = lambda words: None,
) -> None:
    """Runs a command's `main`; its help names the command as it was typed.

    `describe` completes the help of flags, given the words that are no flags, after
    flags are parsed.
    """
    flags.declare_key_flag("verbose")
    try:
        try:
            app.run(
                functools.partial(_perform, main),
                flags_parser=functools.partial(_parsed, describe),
            )
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Nothing more can be flushed at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_BROKEN_PIPE)
    except KeyboardInterrupt as stop:
        _complain(f"error: {stop or 'Interrupted.'}")
        sys.exit(_INTERRUPTED)


def _name():
    """Returns the command that runs, as it is typed without arguments."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name if spec else os.path.splitext(os.path.basename(sys.argv[0]))[0]
    return typed(name.removesuffix(".__main__").rpartition(".")[2])


def _parsed(describe, argv):
    """Parses flags; --help prints the page of the command and ends it."""
    if flag_help.is_asked_for(argv[1:]):
        describe(flag_help.parse_others(argv))
        text = re.sub(
            rf"keras-vit ({'|'.join(COMMANDS)})\b",
            lambda match: typed(match[1]),
            sys.modules["__main__"].__doc__ or "",
        )
        print(flag_help.page(_name(), text))
        sys.exit()
    try:
        return parsed(argv)
    except flags.Error as error:
        _fail(f"error: {error}")


def parsed(argv: Sequence[str]) -> list:
    """Parses flags, and returns the other words; a `flags.Error` says what to do."""
    try:
        words = flags.FLAGS(argv)
    except flags.Error as error:
        raise flags.Error(flag_names.explained(error, _name())) from error
    flag_names.check_numbers()
    flag_names.check_places()
    return words


def _fail(text):
    _complain(text)
    sys.exit(1)


def _complain(text):
    """Prints an error line, with the names of arguments written as flags."""
    start, colon, reason = flag_help.in_flags(text).partition(":")
    print(styled(start + colon, "error", sys.stderr) + reason, file=sys.stderr)


def _perform(main, argv):
    """Runs `main` without the messages of libraries, unless --verbose asks for them."""
    freed_memory.keep()
    if flags.FLAGS["verbose"].value:
        voices = contextlib.nullcontext()
        if _OWN_LOG_LEVEL:
            os.environ[_LOG_LEVEL] = "0"
    else:
        voices = library_messages.hidden()
    with voices:
        try:
            return main(argv)
        except app.UsageError as error:
            _fail(f"error: {error}\n{_name()} --help shows examples and flags.")
        except SystemExit as end:
            if not isinstance(end.code, str):
                raise
            _fail(end.code)


def say_next(*steps: Sequence[str | os.PathLike]) -> None:
    """Prints the command to type next, and the names of others, in one line.

    Each of `steps` has the name of a command and its words. Commands that are not
    installed are left out. A search of `finetune`, which takes minutes, says how many.
    The line is no result: it goes to the standard error.

    Example:
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     say_next(["evaluate", "runs/digits"], ["publish", "runs/digits"])
        next: keras-vit evaluate runs/digits   (or publish)
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     say_next(["finetune", "photos/"])
        next: keras-vit finetune photos/   (2 to 10 minutes)
    """
    known = [step for step in steps if step[0] in COMMANDS]
    if not known:
        return
    (name, *words), *others = known
    line = styled(printable(typed(name, map(str, words))), "next", sys.stderr)
    either = f"or {', '.join(str(step[0]) for step in others)}" if others else ""
    minutes = _minutes(words) if name == "finetune" else ""
    more = "; ".join(filter(None, (minutes, either)))
    print(f"next: {line}{more and f'   ({more})'}", file=sys.stderr)


def _minutes(words):
    """Returns how long a search of `finetune` takes, by the words behind that."""
    given = [word.partition("=")[2] for word in words if word.startswith("--minutes=")]
    return f"{given[-1] if given else '2 to 10'} minutes"


def as_typed(name: str) -> str:
    """Returns the command line as it was typed, for reports."""
    return typed(name, sys.argv[1:])


def values(names: str) -> dict:
    """Returns the values of flags by name, lists as tuples; `names` has spaces."""
    by_name = {name: flags.FLAGS[name].value for name in names.split()}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in by_name.items()
    }


def need_packages(name: str, needed: Iterable[str]) -> None:
    """Exits if a package that a command needs, named as imported, is not installed."""
    with exit_on_errors("nothing was done"):
        packages.need(typed(name), needed)


def need_tensorflow(subject: str, hint: str = "") -> None:
    """Exits if Keras has another backend; `subject` needs TensorFlow."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        sys.exit(
            f"error: {subject} needs TensorFlow, but KERAS_BACKEND is {backend!r}: "
            f"unset it.{hint}"
        )


def need_tensorflow_or_jax(subject: str, hint: str = "") -> None:
    """Like `need_tensorflow`, but accepts the JAX backend if JAX is installed."""
    if os.environ.get("KERAS_BACKEND") != "jax":
        need_tensorflow(subject, f" Or set it to jax.{hint}")
    elif importlib.util.find_spec("jax") is None:
        sys.exit(
            "error: KERAS_BACKEND is 'jax', but JAX is not installed: "
            "pip install jax, or unset KERAS_BACKEND."
        )


@contextlib.contextmanager
def exit_on_errors(interrupted: str) -> Iterator[None]:
    """Ends a command with one line for an error, and quietly after SIGTERM.

    `interrupted` says what is left after Ctrl-C. Folders that the command made stay
    only if something is in them.
    """
    try:
        with files.without_empty_folders():
            yield
    except Preempted as stop:
        print(stop, file=sys.stderr)
    except BrokenPipeError:  # Whoever reads has enough.
        sys.exit(_BROKEN_PIPE)
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted; {interrupted}.") from None
