"""Opens files that are files, and reads no more of them than expected.

A FIFO, a socket or a device can have the name of any file. Opening a FIFO waits for its
writer, and a device may never end.
"""

import contextlib
import difflib
import errno
import functools
import itertools
import os
import pathlib
import stat
from typing import IO, Any

from zoo.common.limits import TooLargeError
from zoo.common.safe_text import PrintableError, brief, printable

_BLOCK_BYTES = 2**18
# The most names of a folder that are compared with a misspelt one.
_MOST_COMPARED = 1000
# By the letters of `stat.filemode`.
_KINDS = {
    **{"l": "a link", "d": "a folder", "p": "a FIFO", "s": "a socket"},
    **{"c": "a device", "b": "a device"},
}
# Remedies for errors of the system; for others it is to check the path.
_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "allow this user to read it."),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE),
        "close files that are open, or allow more (ulimit -n).",
    ),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "check the disk."),
}


class NotRegularError(PrintableError, OSError):
    """A path of something else than a file, such as a FIFO."""


class NoHomeError(PrintableError, OSError):
    """A path begins with the home folder of nobody."""


class NoPathError(PrintableError, ValueError):
    """A text that no path can have, such as one with a null byte."""


class NotTextError(PrintableError, ValueError):
    """A file of text that is in another encoding than UTF-8, or is no text."""


def expand_home(path: str | os.PathLike, name: str = "path") -> pathlib.Path:
    """Returns a path with the home folder for a leading `~` or `~user`.

    Errors call it `name`: a `NoHomeError`, a `NoPathError`, and a TypeError for a list,
    a number or bytes.
    """
    if not isinstance(path, (str, os.PathLike)):
        what = "one path, a str or os.PathLike"
        raise TypeError(f"{name} must be {what}, got {brief(path)}.")
    if "://" not in str(path):  # in URLs all characters are escaped
        _check_characters(path, name)
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError as error:
        user = pathlib.Path(path).parts[0]
        raise NoHomeError(
            f"{os.fspath(path)} begins with {user}, a home folder that is not known: "
            "write the whole path."
        ) from error


def with_text(error: OSError, text: str) -> OSError:
    """Returns an error of the same kind with another text, and errno and all kept.

    Example:
        >>> found = with_text(FileNotFoundError(2, "not found", "a.jpg"), "no a.jpg")
        >>> found, found.errno, found.filename
        (FileNotFoundError('no a.jpg'), 2, 'a.jpg')
    """
    renamed_error = _kind_with_text(type(error))(text)  # type: ignore[arg-type]
    renamed_error.errno, renamed_error.strerror = error.errno, error.strerror
    renamed_error.filename, renamed_error.original = error.filename, error
    return renamed_error


@functools.cache
def _kind_with_text(kind):
    """A kind of `OSError` whose text is not made of errno, strerror and filename."""
    methods = {
        "__module__": kind.__module__,
        "__str__": lambda self: self.args[0],
        # Make it come back from another process.
        "__reduce__": lambda self: (with_text, (self.original, self.args[0])),
    }
    return type(kind.__name__, (kind,), methods)


def remedy(error: OSError, otherwise: str = "check the path.") -> str:
    """Returns what to do about a file that cannot be opened, the end of a message.

    It is `otherwise` where the system's error says nothing of it.
    """
    return _REMEDIES.get(error.errno, otherwise)


def missing_remedy(path: str | os.PathLike) -> str:
    """Returns what to do about a path that is not there, the end of a message.

    Example:
        >>> missing_remedy("tests/golden/token.npz")
        'did you mean tests/goldens/token.npz?'
    """
    near = similar_path(path)
    return f"did you mean {printable(str(near))}?" if near else "check the path."


def similar_path(path: str | os.PathLike) -> pathlib.Path | None:
    """Returns the path that is there and most like one that is not, or None."""
    wanted, near = pathlib.Path(path), pathlib.Path()
    for part in wanted.parts:
        if not os.path.lexists(near / part):
            names = []
            with contextlib.suppress(OSError), os.scandir(near) as entries:
                names = [one.name for one in itertools.islice(entries, _MOST_COMPARED)]
            names = [one for one in names if one[0] != "." or part[0] == "."]
            [part] = difflib.get_close_matches(part, names, n=1, cutoff=0.7) or [""]
        if not part:
            return None
        near /= part
    return None if near == wanted else near


def check(path: str | os.PathLike, *, follow_links: bool = True) -> None:
    """Raises an error unless a path is that of a file, for libraries that open it.

    It is a `NoPathError`, a `NotRegularError`, or the OSError for what is not there.
    With `follow_links=False` a link is refused, too.
    """
    _check_characters(path)
    _check_mode(path, os.stat(path, follow_symlinks=follow_links).st_mode)


def open_regular(
    path: str | os.PathLike,
    mode: str = "rb",
    *,
    buffering: int = -1,
    most: int | None = None,
    follow_links: bool = True,
) -> IO[Any]:
    """Opens a file for its bytes, and never waits for another process.

    `mode` and `buffering` are as of `open`. It may have `most` bytes, such as
    `zoo.common.limits.TABLE_BYTES`, else a `TooLargeError` is raised; other errors are
    those of `check`. With `follow_links=False` a link is refused, not opened.
    """

    def opened(path, flags):
        # Opening some devices already does something.
        with contextlib.suppress(FileNotFoundError):
            check(path, follow_links=follow_links)
        flags |= getattr(os, "O_NONBLOCK", 0)
        if not follow_links:
            flags |= getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            # Another process may have replaced it.
            status = os.fstat(descriptor)
            _check_mode(path, status.st_mode)
            _check_size(path, status.st_size, most)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    _check_characters(path)
    return open(path, mode, buffering, opener=opened)


def read_bytes(path: str | os.PathLike, most: int) -> bytes:
    """Returns the bytes of a file that may have `most` of them.

    Of a larger one, none is kept in memory. Errors are those of `open_regular`.
    """
    blocks, size = [], 0
    with open_regular(path, most=most) as file:
        # In blocks: another process may be adding to it, files of /proc have no size.
        while block := file.read(_BLOCK_BYTES):
            size += len(block)
            _check_size(path, size, most)
            blocks.append(block)
    return b"".join(blocks)


def read_text(
    path: str | os.PathLike, most: int, encoding: str = "utf-8", errors: str = "strict"
) -> str:
    r"""Returns the text of a file, as `read_bytes` its bytes, with `\n` as line break.

    Raises a `NotTextError` for another encoding.
    """
    content = read_bytes(path, most)
    try:
        text = content.decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise NotTextError(
            f"{os.fspath(path)} is not text in UTF-8 from byte {error.start + 1:,} on "
            "(save it as UTF-8)"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def file_lock(path: str | os.PathLike) -> Any:
    """Returns the `filelock.FileLock` of a path, which is not yet acquired.

    Raises a `NotRegularError` where there is something else than a file: some versions
    of filelock empty the file that a link leads to.
    """
    import filelock

    with contextlib.suppress(FileNotFoundError):
        check(path, follow_links=False)
    return filelock.FileLock(path)


def _check_characters(path, name="path"):
    with contextlib.suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(path):
            return
    raise NoPathError(
        f"{name} is {brief(os.fspath(path))}, with a null byte or a character that no "
        "path has: take it out."
    )


def _check_size(path, size, most):
    if most is not None and size > most:
        raise TooLargeError(
            f"{os.fspath(path)} has more than {most:,} bytes, the most that such a "
            "file may have: it is another kind of file, or damaged."
        )


def _check_mode(path, mode):
    if stat.S_ISREG(mode):
        return
    kind = _KINDS.get(stat.filemode(mode)[0], "something else")
    raise NotRegularError(
        f"{os.fspath(path)} is {kind}, not a file, and is left alone: check the path, "
        "or move it away."
    )
