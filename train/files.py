"""Files that are whole or not there."""

import contextlib
import os
import pathlib
import tempfile

from train.errors import RunError


def make_folder(path):
    """Makes a folder, and those above it, unless it is there.

    Args:
        path: str or path.

    Returns:
        `pathlib.Path` of the folder.

    Raises:
        RunError: it cannot be made.
    """
    path = pathlib.Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"Cannot make the folder {path}: {error.strerror}. Pass another --run_dir."
        ) from error
    return path


@contextlib.contextmanager
def whole_file(path):
    """Yields a temporary path beside `path`, which takes its place on success.

    Args:
        path: str or path of the file to write.

    Yields:
        `pathlib.Path` of the same ending, to be written.

    Raises:
        RunError: the file cannot be written (permissions, disk full); what was at
            `path` before is untouched.

    Example:

    >>> with whole_file("metrics.txt") as temporary:
    ...     _ = temporary.write_text("done")
    """
    path = pathlib.Path(path)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent
        )
        os.close(handle)
        temporary = pathlib.Path(name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes files that only their owner may read.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        raise RunError(
            f"Cannot write {path}: {error.strerror or error}. Free space or mend the "
            "permissions, or pass another --run_dir."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
