"""Paths that begin with the home folder of a user."""

import os
import pathlib

from zoo.text import PrintableError


class NoHomeError(PrintableError, OSError):
    """A path begins with the home folder of nobody."""


def expand_home(path: str | os.PathLike) -> pathlib.Path:
    """Returns a path with the home folder for a leading `~` or `~user`.

    Args:
        path: str or path-like.

    Raises:
        NoHomeError: there is no such user, or this one has no home folder.

    Example:
        >>> expand_home("runs/~digits").as_posix()
        'runs/~digits'
    """
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError as error:
        user = pathlib.Path(path).parts[0]
        raise NoHomeError(
            f"{os.fspath(path)} begins with {user}, a home folder that is not known: "
            "write the whole path."
        ) from error
