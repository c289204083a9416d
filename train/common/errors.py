"""Errors that a person at the command line can mend."""

from zoo.text import PrintableError, printable

# What to do where a number is not finite.
DIVERGED = (
    "lower --learning_rate, raise --warmup_steps or use --precision=float32. The "
    "checkpoints before it are kept."
)
_LONGEST = 300


class RunError(PrintableError):
    """A run cannot start or go on; the message says what to do.

    Raised for what lies outside the code: directories, checkpoints, data.
    """


class Stopped(RunError):
    """Somebody stopped the run; what was done is saved."""


class Preempted(Stopped):
    """The machine is wanted back, by SIGTERM."""


def first_line(reason):
    r"""Returns what another library says, fit for a message of one line.

    Args:
        reason: str or exception.

    Example:

    >>> first_line(ValueError("no such layer\nFull config: ..."))
    'no such layer'
    """
    line = next(iter(str(reason).strip().splitlines()), type(reason).__name__)
    return printable(line, _LONGEST)
