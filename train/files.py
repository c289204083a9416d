"""Files and folders that are whole or not there."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from train.errors import RunError


def make_folder(path, flag="--run_dir"):
    """Makes a folder, and those above it, unless it is there.

    Args:
        path: str or path.
        flag: str, that names it.

    Returns:
        `pathlib.Path` of the folder.

    Raises:
        RunError: it cannot be made.
    """
    path = pathlib.Path(path).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"Cannot make the folder {path}: {error.strerror}. Pass another {flag}."
        ) from error
    return path


@contextlib.contextmanager
def whole_file(path):
    """Yields a temporary path beside `path`, which takes its place on success.

    A process that is killed leaves it there: `remove_temporaries`.

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
    path = pathlib.Path(path).expanduser()
    temporary = None
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem}-", suffix=f".tmp{path.suffix}", dir=path.parent
        )
        os.close(handle)
        temporary = pathlib.Path(name)
        yield temporary
        _to_disk(temporary)
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


def remove_temporaries(folder):
    """Removes the temporary files that killed processes left in a folder.

    Args:
        folder: `pathlib.Path`, to which no other process writes.

    Example:

    >>> remove_temporaries(pathlib.Path("."))
    """
    for path in folder.glob(".*-????????.tmp*"):
        if path.is_file():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path):
    """Yields a temporary folder, which takes the place of `path` on success.

    A process that is killed leaves the old folder as it was; between the two renames
    at the end, as `old` in a hidden folder beside it.

    Args:
        path: str or path of the folder to write; those above it are made.

    Yields:
        `pathlib.Path` of an empty folder, to be filled.

    Raises:
        RunError: the folder cannot be written (permissions, disk full); what was at
            `path` before is untouched.

    Example:

    >>> with whole_folder("exported") as temporary:
    ...     _ = (temporary / "metrics.txt").write_text("done")
    """
    path = pathlib.Path(path).expanduser().resolve()
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = pathlib.Path(
            tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)
        )
        new, old = beside / "new", beside / "old"
        new.mkdir()
        yield new
        for written in new.rglob("*"):
            if written.is_file():
                _to_disk(written)
        try:
            # Only an empty folder can be replaced in one step.
            if path.exists():
                path.rename(old)
            new.rename(path)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise
    except OSError as error:
        raise RunError(
            f"Cannot write the folder {path}: {error.strerror or error}. Free space or "
            "mend the permissions, or choose another folder."
        ) from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)


def _to_disk(path):
    with path.open("rb") as written:
        os.fsync(written.fileno())


def file_names(folder):
    """Returns the set of files in a folder and those below, as relative paths.

    Args:
        folder: `pathlib.Path`.
    """
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }
