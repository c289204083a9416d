"""Errors that a user of the command line can fix."""

import contextlib
from collections.abc import Iterator

from zoo.common.safe_text import PrintableError, printable

# The remedy for numbers that are not finite.
DIVERGED = (
    "lower --learning_rate, raise --warmup_steps or use --precision=float32. The "
    "checkpoints before it are kept."
)


class RunError(PrintableError):
    """A run cannot start or go on; the message says what to do.

    Raised for what lies outside the code: directories, checkpoints, data.
    """


class FullMemoryError(RunError):
    """The memory of a device is full."""


class LibraryError(RunError):
    """A library has failed; what it printed last says more, see `library_messages`."""


class Stopped(RunError):
    """The run was interrupted; its progress is saved."""


class Preempted(Stopped):
    """The run was stopped by SIGTERM, as when a machine is preempted."""


@contextlib.contextmanager
def explaining_full_memory(remedy: str) -> Iterator[None]:
    """Raises a `FullMemoryError` with a remedy where the device's memory is full."""
    try:
        yield
    except Exception as error:
        # Compare names: TensorFlow and PyTorch may be missing. JAX has no such class.
        kinds = ("ResourceExhaustedError", "OutOfMemoryError")
        if type(error).__name__ not in kinds and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise FullMemoryError(f"The device's memory is full: {remedy}") from error


def first_line(reason: object) -> str:
    """Returns the first line of another library's error or message, printable."""
    line = next(iter(str(reason).strip().splitlines()), type(reason).__name__)
    return printable(line, 300)
