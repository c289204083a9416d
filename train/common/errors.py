"""Errors that a user of the command line can fix."""

from zoo.text import PrintableError, printable

# What to do where a number is not finite.
DIVERGED = (
    "lower --learning_rate, raise --warmup_steps or use --precision=float32. The "
    "checkpoints before it are kept."
)


class RunError(PrintableError):
    """A run cannot start or go on; the message says what to do.

    Raised for what lies outside the code: directories, checkpoints, data.
    """


class Stopped(RunError):
    """The run was interrupted; its progress is saved."""


class Preempted(Stopped):
    """The run was stopped by SIGTERM, as when a machine is preempted."""


def first_line(reason):
    """Returns the first line of another library's error or message, printable."""
    line = next(iter(str(reason).strip().splitlines()), type(reason).__name__)
    return printable(line, 300)
