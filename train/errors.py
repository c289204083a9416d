"""Errors that a person at the command line can mend."""


class RunError(Exception):
    """A run cannot start or go on; the message says what to do.

    Raised for what lies outside the code: directories, checkpoints, data.
    """
