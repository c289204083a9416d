"""The directory of a run: its files, its lock, and the settings it was started with."""

import contextlib
import json
import os
import pathlib
import re
import socket

import filelock

from train.common.errors import RunError
from train.common.files import make_folder, read_json, remove_temporaries, write_json
from train.data.registry import is_same


class RunDirectory:
    """The paths of a run's files, in the directory `path`."""

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
        """Locks the directory, which is made, and removes half-written files in it.

        The operating system releases the lock when the process ends, however it does.
        """
        is_new = not self.path.exists()
        make_folder(self.path)
        lock = filelock.FileLock(self.lock)
        with contextlib.ExitStack() as stack:
            if is_new:
                # A run that was refused has written nothing.
                stack.callback(_attempt, self.path.rmdir)
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
                    f"Cannot lock {self.lock}: {error}. Fix the permissions, or pass "
                    "a --run_dir on a disk that supports locks."
                ) from error
            stack.callback(lock.release)
            # A soft lock, for disks without others, is the file itself.
            if not isinstance(lock, filelock.SoftFileLock):
                # Before the release: after it, it may be another run's. Windows does
                # not remove open files.
                stack.callback(_attempt, self.lock.unlink)
                with contextlib.suppress(OSError):
                    self.lock.write_text(
                        f"process {os.getpid()} on {socket.gethostname()}",
                        encoding="utf-8",
                    )
            remove_temporaries(self.path)
            # Today's temporary files, and those of earlier versions without ".tmp".
            for path in self.checkpoints.glob(".*-*.npz"):
                path.unlink(missing_ok=True)
            yield

    def _owner(self):
        try:
            text = self.lock.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        # Other content of the file must not reach a terminal.
        known = re.fullmatch(r"process \d{1,20} on [\w.-]{1,99}", text, re.ASCII)
        return f" ({text})" if known else ""

    def claim(self, settings):
        """Writes all that decides a result, or checks that a begun run has the same."""
        make_folder(self.path)
        self._claim(self.config, settings, "settings", {})
        return self

    def claim_data(self, facts, since=None):
        """Writes the facts of a run's data, or checks that they have not changed.

        `since` are further facts, which earlier versions did not write.
        """
        self._claim(self.data, facts, "data", since or {})

    def _claim(self, file, settings, kind, since):
        # Tuples become lists as they will when read back.
        settings = json.loads(json.dumps(settings | since))
        if not self._is_begun():
            write_json(file, settings)
            return
        if not file.exists():
            raise RunError(
                f"{self.path} holds a run without its {file.name}, so its {kind} "
                "are not known: copy that file from a backup, or pass another "
                "--run_dir."
            )
        earlier = _read(file)
        differences = [
            f"{name} {earlier.get(name)!r} (now {settings.get(name)!r})"
            for name in sorted((settings.keys() - since.keys()) | earlier.keys())
            if not _agree(name, earlier.get(name), settings.get(name))
        ]
        if differences:
            raise RunError(
                f"{self.path} holds a run with other {kind}: "
                f"{', '.join(differences)}. Pass the same to continue it, or another "
                "--run_dir."
            )

    def require(self, *files):
        """Refuses a directory without these files of a finished run."""
        for file in files:
            if not file.is_file():
                raise RunError(
                    f"{self.path} has no {file.name}, so it holds no finished run: "
                    "run the command again that started it, or check the path."
                )

    def read_results(self, *more):
        """Returns the `report.json` of a finished run, a dict.

        It has what commands need of every report, and `more`.
        """
        self.require(self.results, self.model)

        def checked(found):
            if missing := [name for name in more if name not in found]:
                raise RunError(
                    f"{self.results} has no {', '.join(missing)} (an earlier version "
                    f"wrote it, or it was changed): {remedy}."
                )
            found["config"]["dataset"], found["config"]["model"], found["test_examples"]
            float(found["test_accuracy"]), int(found["parameters"])
            [(row["name"], row["examples"], row["f1"]) for row in found["per_class"]]
            return found

        remedy = "remove it and give the command again that began the run, or check "
        remedy += "the path"
        return read_json(self.results, remedy, checked)

    def read_config(self):
        """Returns the settings of the run, a dict, empty without their file."""
        if not self.config.is_file():
            return {}
        remedy = f"pass {self.model}, which needs no settings, and --dataset"
        config = _read(self.config, remedy)
        if missing := {"dataset", "validation_fraction"} - config.keys():
            raise RunError(
                f"{self.config} is damaged (it has no {', '.join(sorted(missing))}): "
                f"copy it from a backup, or {remedy}."
            )
        return config

    def read_class_names(self):
        """Returns the names of the classes, a tuple of str in the head's order."""
        # An editor may drop the last line break, or add a byte order mark.
        text = self.class_names.read_text(encoding="utf-8-sig")
        return tuple(text.removesuffix("\n").split("\n"))

    def _is_begun(self):
        # A run that failed before its first checkpoint has nothing to continue: the
        # corrected command may use its directory.
        return self.model.exists() or any(self.checkpoints.glob("step-*.npz"))


def _attempt(remove):
    with contextlib.suppress(OSError):
        remove()


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
    return read_json(file, f"copy it from a backup, or {remedy}")
