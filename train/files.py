"""Files that are whole or not there."""

import contextlib
import os
import pathlib
import tempfile

from train.errors import RunError


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
