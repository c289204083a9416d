"""Commands of train run in this process, which starts no other."""

import contextlib
import runpy
import sys

import pytest
from absl import app, flags


@contextlib.contextmanager
def _forgotten_flags():
    known = set(flags.FLAGS)
    try:
        yield
    finally:
        for flag in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, flag)


def function_of(command, name):
    """Returns a function of the module of a command, whose flags are forgotten."""
    with _forgotten_flags():
        return runpy.run_module(f"train.{command}")[name]


def run_command(name, *arguments):
    """Runs `keras-vit NAME ARGUMENTS`; its flags are forgotten afterwards.

    Raises:
        SystemExit: as the command does; or with the message of a wrong flag.
    """
    argv = [f"train.{name}", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch, _forgotten_flags():
        patch.setattr(sys, "argv", argv)
        try:
            module = runpy.run_module(f"train.{name}")
            module["main"](flags.FLAGS(argv))
        except (flags.Error, app.UsageError) as error:
            raise SystemExit(str(error)) from error
        finally:
            flags.FLAGS.unparse_flags()
