"""Quiet while TensorFlow writes."""

import contextlib
import logging


@contextlib.contextmanager
def without_notices():
    """Keeps TensorFlow from naming the temporary folders that it writes to.

    Warnings and errors stay.

    Example:

    >>> with without_notices():
    ...     logging.getLogger("absl").info("Assets written to: /tmp/tmpk2ksd")
    """
    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]

    # Not their levels: in the midst of saving, TensorFlow sets absl's back.
    def is_warning(record):
        return record.levelno >= logging.WARNING

    try:
        for logger in loggers:
            logger.addFilter(is_warning)
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_warning)
