"""The directory of a run: what is where, and whose it is."""

import contextlib
import json
import os
import pathlib
import re
import socket

import filelock

from train.common.errors import RunError
from train.common.files import make_folder, remove_temporaries, whole_file
from train.data.registry import is_same


class RunDirectory:
    """The files of a run.

    Args:
        path: str or path.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path).expanduser()
        self.config = self.path / "config.json"
        self.data = self.path / "data.json"
        self.skipped = self.path / "skipped_images.txt"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.model = self.path / "model.keras"
        self.weights = self.path / "weights.npz"
        self.class_names = self.path / "class_names.txt"
        self.batch = self.path / "training_batch.png"
        self.predictions = self.path / "predictions.png"
        self.report = self.path / "report.md"
        self.results = self.path / "report.json"
        self.lock = self.path / ".run.lock"

    @contextlib.contextmanager
    def locked(self):
        """Keeps other processes from training in the directory, which is made.

        What writes that were killed left half done is removed. The system lifts the
        lock of a process that ends, however it does.

        Raises:
            RunError: another process has the lock, or the directory cannot be written.
        """
        is_new = not self.path.exists()
        make_folder(self.path)
        lock = filelock.FileLock(self.lock)
        with contextlib.ExitStack() as stack:
            if is_new:
                stack.callback(self._remove_if_empty)
            # Before the attempt, at which some versions of filelock empty the file.
            owner = self._owner()
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout as error:
                raise RunError(
                    f"Another run{owner} is using {self.path}: wait for it or stop it, "
                    "or pass another --run_dir."
                ) from error
            except (OSError, NotImplementedError) as error:
                raise RunError(
                    f"Cannot lock {self.lock}: {error}. Mend the permissions, or pass "
                    "a --run_dir on a disk that has locks."
                ) from error
            stack.callback(lock.release)
            # A soft lock, for disks that have no others, is the file itself.
            if not isinstance(lock, filelock.SoftFileLock):
                # While it is locked, or it could be another run's already.
                stack.callback(self._unlink_lock)
                with contextlib.suppress(OSError):
                    self.lock.write_text(
                        f"process {os.getpid()} on {socket.gethostname()}",
                        encoding="utf-8",
                    )
            self._tidy()
            yield

    def _owner(self):
        try:
            text = self.lock.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        # Whatever else is in the file does not reach a terminal.
        known = re.fullmatch(r"process \d{1,20} on [\w.-]{1,99}", text, re.ASCII)
        return f" ({text})" if known else ""

    def _remove_if_empty(self):
        # Of what was refused before anything was written.
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _unlink_lock(self):
        # Windows does not remove what is open.
        with contextlib.suppress(OSError):
            self.lock.unlink()

    def _tidy(self):
        remove_temporaries(self.path)
        remove_temporaries(self.checkpoints)
        for name in ("step", "best"):
            # As earlier versions named them.
            for path in self.checkpoints.glob(f".{name}-*.npz"):
                path.unlink(missing_ok=True)

    def claim(self, settings):
        """Makes the directory that of a run; what is there of the same run stays.

        Args:
            settings: dict of what decides the run's result, to JSON. A directory that
                holds checkpoints or the model of other settings is left alone.

        Returns:
            The directory itself.

        Raises:
            RunError: the directory cannot be written, or holds another run, or one
                without its settings.
        """
        make_folder(self.path)
        self._claim(self.config, settings, "settings")
        return self

    def claim_data(self, facts, since=None):
        """Makes sure that a run goes on with the data that it began with.

        Args:
            facts: dict of what is known of the data, to JSON.
            since: dict of further facts, which runs of earlier versions did not note.

        Raises:
            RunError: the directory cannot be written, or holds a run on other data.
        """
        since = since or {}
        if self._is_begun() and self.data.exists():
            known = _read(self.data)
            since = {name: since[name] for name in since if name in known}
        self._claim(self.data, facts | since, "data")

    def _claim(self, file, settings, kind):
        # Tuples become lists as they will when read back.
        settings = json.loads(json.dumps(settings))
        if self._is_begun():
            if not file.exists():
                raise RunError(
                    f"{self.path} holds a run without its {file.name}, so its {kind} "
                    "are not known: copy that file from a backup, or pass another "
                    "--run_dir."
                )
            self._compare(file, settings, kind)
        else:
            with whole_file(file) as temporary:
                text = json.dumps(settings, indent=2, ensure_ascii=False)
                temporary.write_text(f"{text}\n", encoding="utf-8")

    def require(self, *files):
        """Makes sure that a finished run left these files.

        Args:
            *files: paths, of those above.

        Raises:
            RunError: one is missing.
        """
        for file in files:
            if not file.is_file():
                raise RunError(
                    f"{self.path} has no {file.name}, so it holds no finished run: "
                    "give the command again that began it, or check the path."
                )

    def read_config(self):
        """Returns the settings of the run, a dict; empty where there are none.

        Raises:
            RunError: the file is damaged.
        """
        if not self.config.is_file():
            return {}
        remedy = f"pass {self.model}, which does without it, and --dataset"
        config = _read(self.config, remedy)
        if missing := {"dataset", "validation_fraction"} - config.keys():
            raise RunError(
                f"{self.config} is damaged (it has no {', '.join(sorted(missing))}): "
                f"copy it from a backup, or {remedy}."
            )
        return config

    def read_class_names(self):
        """Returns the names of the classes, a tuple of str in the head's order."""
        # A person's editor may leave out the last line break, or begin with a mark.
        text = self.class_names.read_text(encoding="utf-8-sig")
        return tuple(text.removesuffix("\n").split("\n"))

    def _is_begun(self):
        # A run that stopped at an error before its first checkpoint leaves nothing to
        # go on with: the mended command may have its directory.
        return self.model.exists() or any(self.checkpoints.glob("step-*.npz"))

    def _compare(self, file, settings, kind):
        earlier = _read(file)
        names = sorted(settings.keys() | earlier.keys())
        differences = [
            f"{name} {earlier.get(name)!r} (now {settings.get(name)!r})"
            for name in names
            if not _agree(name, earlier.get(name), settings.get(name))
        ]
        if differences:
            raise RunError(
                f"{self.path} holds a run with other {kind}: "
                f"{', '.join(differences)}. Give it the same to go on with it, or pass "
                "another --run_dir."
            )


def _agree(name, earlier, now):
    if name == "dataset" and isinstance(earlier, str) and isinstance(now, str):
        return is_same(earlier, now)
    if name == "model" and isinstance(earlier, dict) and isinstance(now, dict):
        # Earlier versions had fewer fields, and None says nothing.
        earlier, now = (
            {field: value for field, value in model.items() if value is not None}
            for model in (earlier, now)
        )
    return earlier == now


def _read(file, remedy="pass another --run_dir"):
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, OSError, RecursionError) as error:
        raise RunError(
            f"{file} is damaged ({error}): copy it from a backup, or {remedy}."
        ) from error
    return found
