"""Opens files for reading that are files, and reads no more of them than expected.

A FIFO, a socket or a device can have the name of any file. Opening a FIFO waits for its
writer, and a device may never end.
"""

import io
import os
import stat

from zoo.text import PrintableError

_BLOCK_BYTES = 2**18
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularError(PrintableError, OSError):
    """A path of something else than a file, such as a FIFO."""


class TooLargeError(PrintableError, ValueError):
    """A file with more bytes than its kind ever has."""


def check(path: str | os.PathLike) -> None:
    """Raises an error unless a path is that of a file, for libraries that open it.

    Raises:
        NotRegularError: it is a folder, a FIFO, a socket or a device.
        OSError: there is nothing.

    Example:
        >>> check("tests/goldens/token.npz")
    """
    _check_mode(path, os.stat(path).st_mode)


def open_regular(path: str | os.PathLike) -> io.BufferedReader:
    """Opens a file to read its bytes, and never waits for a writer of it.

    Args:
        path: path of a file, or of a link to one.

    Raises:
        NotRegularError: it is a folder, a FIFO, a socket or a device.
        OSError: there is no such file, or it cannot be read.

    Example:
        >>> with open_regular("tests/goldens/token.npz") as file:
        ...     file.read(2)
        b'PK'
    """
    return open(path, "rb", opener=_opened)


def read_bytes(path: str | os.PathLike, most: int) -> bytes:
    """Returns the bytes of a file that may have `most` of them.

    Args:
        path: as of `open_regular`.
        most: int, a limit such as `zoo.limits.TEXT_BYTES`.

    Raises:
        TooLargeError: it has more; none of them was kept in memory.
        OSError: as of `open_regular`.

    Example:
        >>> len(read_bytes("tests/goldens/token.npz", 2**20)) > 0
        True
    """
    blocks, size = [], 0
    with open_regular(path) as file:
        declared = os.fstat(file.fileno()).st_size
        # In blocks: another process may be adding to it, files of /proc have no size.
        while max(size, declared) <= most and (block := file.read(_BLOCK_BYTES)):
            blocks.append(block)
            size += len(block)
    if max(size, declared) > most:
        raise TooLargeError(
            f"{os.fspath(path)} has more than {most:,} bytes, the most that such a "
            "file may have: it is another kind of file, or damaged."
        )
    return b"".join(blocks)


def read_text(
    path: str | os.PathLike, most: int, encoding: str = "utf-8", errors: str = "strict"
) -> str:
    r"""Returns the text of a file, as `read_bytes` its bytes, with `\n` as line break.

    Raises:
        UnicodeDecodeError: it is not in this encoding.
        OSError, TooLargeError: as of `read_bytes`.

    Example:
        >>> read_text("tests/goldens/index.json", 2**20)[:1]
        '{'
    """
    text = read_bytes(path, most).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _opened(path, flags):
    # Opening some devices already does something.
    check(path)
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        # Another process may have replaced it.
        _check_mode(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_mode(path, mode):
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    raise NotRegularError(
        f"{os.fspath(path)} is {kind}, not a file, and is not read: check the path, or "
        "move it away."
    )
