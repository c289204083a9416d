"""Errors that a person at the command line can mend."""

from zoo.text import PrintableError


class RunError(PrintableError):
    """A run cannot start or go on; the message says what to do.

    Raised for what lies outside the code: directories, checkpoints, data.
    """


class Stopped(RunError):
    """Somebody stopped the run; what was done is saved."""


class Preempted(Stopped):
    """The machine is wanted back, by SIGTERM."""
