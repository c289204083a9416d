"""Commands of train run in this process, which starts no other."""

import runpy
import sys

import pytest
from absl import app, flags


def function_of(command, name):
    """Returns a function of the module of a command, whose flags are forgotten."""
    known = set(flags.FLAGS)
    try:
        return runpy.run_module(f"train.{command}")[name]
    finally:
        for flag in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, flag)


def run_command(name, *arguments):
    """Runs `keras-vit NAME ARGUMENTS`; its flags are forgotten afterwards.

    Raises:
        SystemExit: as the command does; or with the message of a wrong flag.
    """
    known = set(flags.FLAGS)
    argv = [f"train.{name}", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        try:
            module = runpy.run_module(f"train.{name}")
            module["main"](flags.FLAGS(argv))
        except (flags.Error, app.UsageError) as error:
            raise SystemExit(str(error)) from error
        finally:
            for flag in set(flags.FLAGS) - known:
                delattr(flags.FLAGS, flag)
            flags.FLAGS.unparse_flags()
