"""Files and folders that are written whole or not at all."""

import contextlib
import contextvars
import glob
import json
import os
import pathlib
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import filelock

from train.common.errors import RunError, first_line
from zoo.common.limits import JSON_BYTES
from zoo.common.regular_files import expand_home, file_lock, read_text

# No write takes so long: a temporary file of this age is from a killed process.
_ABANDONED_SECONDS = 24 * 60 * 60
# The names of temporary files, as `whole_file` makes them, and of folders.
_TEMPORARY = r"\..+-[0-9a-f]{8}\.tmp(\.[a-z0-9]+)?"
_TEMPORARY_FOLDER = r"\.(step|best)-[0-9]{8,}\.shards\.tmp"
_CHECKPOINT = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,})\.(npz|shards)")
# How often a folder is made that other processes make or remove, too.
_ATTEMPTS = 10
# A process locks this file in the hidden folder that it writes.
_LOCK = "lock"
# Folders that `make_folder` has made, where `without_empty_folders` wants to know.
_made: contextvars.ContextVar[list | None] = contextvars.ContextVar(
    "made", default=None
)
MEND = "Free space or mend the permissions"


def checkpoint_steps(folder: str | os.PathLike) -> list:
    """Returns the steps that have a checkpoint in a folder, in order.

    Other files, such as `step-00000008 (copy).npz`, do not count.
    """
    matches = (
        _CHECKPOINT.fullmatch(path.name) for path in pathlib.Path(folder).glob("*")
    )
    return sorted(int(match[1]) for match in matches if match)


def make_folder(path: str | os.PathLike, flag: str = "--run_dir") -> pathlib.Path:
    """Makes a folder that a flag names, and those above it, and returns its path."""
    path = expand_home(path)
    with explained(f"make the folder {path}", f"Pass another {flag}"):
        _make(path)
    return path


def _make(path):
    made = _made.get()
    # Another process may remove an empty one that it had made, see below.
    for attempt in range(_ATTEMPTS):
        try:
            for one in reversed((path, *path.parents)):
                # The last one may be refused when those above it are made.
                if not one.exists() and _is_made(one) and made is not None:
                    made.append(one.absolute())
            path.mkdir(exist_ok=True)
            return
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise


def _is_made(folder):
    """Makes a folder; returns whether no other process was faster."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def without_empty_folders() -> Iterator[None]:
    """Removes the folders at the end that `make_folder` made and nothing is in."""
    made = []
    token = _made.set(made)
    try:
        yield
    finally:
        _made.reset(token)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def explained(task: str, remedy: str) -> Iterator[None]:
    """Turns errors of the disk into a `RunError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"Cannot {task}: {reason}. {remedy}.") from error


@contextlib.contextmanager
def locked(path: str | os.PathLike, flag: str) -> Iterator[None]:
    """Keeps other processes from writing a file, which `flag` names, for a while."""
    path = expand_home(path)
    make_folder(path.parent, flag)
    place = path.with_name(f".{path.name}.lock")
    with lock_file(place, f"Another process is writing {path}", flag):
        yield


@contextlib.contextmanager
def lock_file(place: pathlib.Path, busy: str, flag: str) -> Iterator[bool]:
    """Holds a lock file, which other processes are refused; yields whether it is soft.

    The operating system releases the lock when the process ends, however it does. A
    soft lock, for disks without others, is the file itself. `busy` says what another
    process does that holds it, `flag` names what is written.
    """
    try:
        lock = file_lock(place)
        held = lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise RunError(
            f"{busy}: wait for it or stop it, or pass another {flag}."
        ) from error
    except (OSError, NotImplementedError) as error:
        raise RunError(
            f"Cannot lock {place}: {error}. Fix the permissions, or pass another "
            f"{flag}, on a disk that supports locks."
        ) from error
    is_soft = isinstance(lock, filelock.SoftFileLock)
    with held:
        try:
            yield is_soft
        finally:
            # Remove it before the release: afterwards it may be another's. Windows does
            # not remove open files.
            with contextlib.suppress(OSError):
                if not is_soft:
                    place.unlink()


def _hold(folder, stack):
    """Locks a folder of temporary files until an `ExitStack` ends."""
    # Some disks have no locks: leftovers of killed processes stay there.
    with contextlib.suppress(OSError, NotImplementedError):
        lock = file_lock(pathlib.Path(folder, _LOCK))
        lock.acquire(timeout=0)
        stack.callback(lock.release)


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike, flag: str = "--run_dir"
) -> Iterator[pathlib.Path]:
    """Yields a temporary path of the same ending, which replaces `path` on success.

    A process that is killed leaves it there, for `remove_temporaries` or for the same
    file a day later. `flag` names the folder, for the message of an error.
    """
    path = expand_home(path)
    remedy = f"{MEND}, or pass another {flag}"
    with contextlib.ExitStack() as stack, explained(f"write {path}", remedy):
        name = f".{path.stem}-{secrets.token_hex(4)}.tmp{path.suffix}"
        temporary = path.with_name(name)
        temporary.touch(exist_ok=False)
        stack.callback(temporary.unlink, missing_ok=True)
        _remove_abandoned(path, temporary.stat().st_mtime)
        yield temporary
        _to_disk(temporary)
        move(temporary, path)


def move(source: pathlib.Path, path: pathlib.Path) -> None:
    """Renames a file or folder, so that a power failure does not undo it."""
    source.replace(path)
    # Windows opens no folders, and some disks refuse to sync them.
    with contextlib.suppress(OSError):
        _to_disk(path.parent)


def write_text(path: str | os.PathLike, text: str, flag: str = "--run_dir") -> None:
    r"""Writes a file of UTF-8 text, whole or not at all.

    Bytes of a file name that are not UTF-8 are written as JSON escapes them, \udcff.
    """
    with whole_file(path, flag) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | os.PathLike, value: Any, flag: str = "--run_dir") -> None:
    """Writes a value as a JSON file, whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, f"{text}\n", flag)


def read_json(
    path: str | os.PathLike, remedy: str, part: Callable[[dict], Any] = dict
) -> Any:
    """Returns `part` of the dict in a JSON file.

    `part` is a function, which fails where the content is not as it should be; the
    error's message has `remedy`.
    """
    try:
        content = json.loads(read_text(path, JSON_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        return part(content)
    except (ValueError, LookupError, TypeError, OSError, RecursionError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise RunError(f"{path} is damaged ({reason}): {remedy}.") from error


def _remove_abandoned(path, now):
    """Removes temporary files of `path` that are a day old, by its disk's clock."""
    stem, suffix = glob.escape(path.stem), glob.escape(path.suffix)
    for temporary in path.parent.glob(f".{stem}-????????.tmp{suffix}"):
        # Another process may do the same.
        with contextlib.suppress(OSError):
            if now - temporary.lstat().st_mtime > _ABANDONED_SECONDS:
                temporary.unlink()


def remove_temporaries(folder: pathlib.Path) -> None:
    """Removes what killed processes left in a folder; no other may write to it."""
    if not folder.is_dir():
        return
    for name in os.listdir(folder):
        if re.fullmatch(_TEMPORARY, name):
            path = folder / name
            if path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)
        if re.fullmatch(_TEMPORARY_FOLDER, name) and not (folder / name).is_symlink():
            shutil.rmtree(folder / name, ignore_errors=True)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields an empty temporary folder, which replaces `path` on success.

    A process that is killed leaves the old folder as it was; between the two renames
    at the end, as `old` in a hidden folder beside it. The next to write the folder
    puts that back, and removes the hidden one.
    """
    path = expand_home(path).resolve()
    remedy = f"{MEND}, or choose another folder"
    task = f"write the folder {path}"
    with contextlib.ExitStack() as stack, explained(task, remedy):
        _make(path.parent)
        _tidy_beside(path)
        folder = tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        beside = pathlib.Path(folder)
        _hold(beside, stack)
        new, old = beside / "new", beside / "old"
        new.mkdir()
        try:
            yield new
        except RunError as error:
            error.args = (str(error).replace(str(new), str(path)), *error.args[1:])
            raise
        for name in file_names(new):
            _to_disk(new / name)
        try:
            # Only an empty folder can be replaced in one step.
            if path.exists():
                path.rename(old)
            move(new, path)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            raise


@contextlib.contextmanager
def scratch_folder(
    purpose: str, within: str | os.PathLike | None = None
) -> Iterator[str]:
    """Yields a temporary folder; removes what killed processes left.

    `purpose` is a part of its name; it lies in the folder `within`, by default the
    system's.
    """
    prefix = f"keras-vit-{purpose}-"
    within = tempfile.gettempdir() if within is None else within
    for left in pathlib.Path(within).glob(f"{prefix}????????"):
        # Another process is using it, or does the same.
        with contextlib.suppress(OSError, NotImplementedError):
            status = left.lstat()
            is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            # A folder in use was locked first.
            if stat.S_ISDIR(status.st_mode) and is_own and (left / _LOCK).is_file():
                with file_lock(left / _LOCK).acquire(timeout=0):
                    shutil.rmtree(left)
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=within) as folder,
        contextlib.ExitStack() as stack,
    ):
        _hold(folder, stack)
        yield folder


def _tidy_beside(path):
    """Removes what killed processes left beside a folder, which is put back first."""
    for beside in path.parent.glob(f".{glob.escape(path.name)}-????????"):
        # Another process is writing, or does the same.
        with contextlib.suppress(OSError, NotImplementedError):
            if beside.is_symlink():
                continue
            parts = set(os.listdir(beside))
            # A writer holds the lock before it makes any of these.
            if not parts & {"new", "old"} or parts - {"new", "old", _LOCK}:
                continue
            with file_lock(beside / _LOCK).acquire(timeout=0):
                if "old" in parts and not path.exists():
                    (beside / "old").rename(path)
            shutil.rmtree(beside)


def _to_disk(path):
    written = os.open(path, os.O_RDONLY)
    try:
        os.fsync(written)
    finally:
        os.close(written)


def file_names(folder: pathlib.Path) -> set:
    """Returns the files in a folder and those below, a set of relative paths."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refuse_others(
    folder: pathlib.Path,
    own: Sequence[str],
    content: str,
    remedy: str = "choose another folder",
) -> None:
    """Raises a `RunError` if a folder that is replaced has more than the names `own`.

    The first of these makes it `content`; `remedy` is how to write elsewhere.
    """
    held = set(os.listdir(folder)) if folder.is_dir() else set()
    if folder.is_file() or (held and own[0] not in held):
        raise RunError(
            f"{folder} exists and is not {content}, so it is not replaced: {remedy}, "
            "or remove it."
        )
    if others := held - {*own}:
        raise RunError(
            f"{folder} holds {content}, and {min(others)} besides, which would be "
            "lost: move it away."
        )


def check_replaceable(
    out: pathlib.Path, record: str, files_of: Callable[[dict], Iterable[str]], kind: str
) -> None:
    """Raises a `RunError` if a folder holds more than what the same command wrote.

    `record` is the JSON file in it that lists what was written; `files_of` turns its
    content into the relative paths of the other files, and `kind` names them.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        known = {record, *files_of(json.loads(read_text(out / record, JSON_BYTES)))}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{out} exists and is not an earlier {kind}, which could be replaced: pass "
            "another --out, or remove it."
        ) from error
    if others := sorted(file_names(out) - known):
        raise RunError(
            f"{out} holds an earlier {kind}, and {others[0]} besides, which would be "
            "lost: move it, or pass another --out."
        )
