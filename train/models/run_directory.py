"""The directory of a run: its files, its lock, and the settings it was started with."""

import contextlib
import json
import os
import pathlib
import re
import socket
from collections.abc import Iterator
from typing import Any

from train.common.errors import RunError, first_line
from train.common.files import (
    checkpoint_steps,
    lock_file,
    make_folder,
    read_json,
    remove_temporaries,
    without_empty_folders,
    write_json,
)
from train.data.checking import RUN_DATA, RUN_SETTINGS
from train.data.registry import is_same
from train.tasks import CLASSES
from zoo.catalog.labels import texts_of
from zoo.common.limits import NOTE_BYTES, TEXT_BYTES
from zoo.common.regular_files import (
    expand_home,
    missing_remedy,
    open_regular,
    read_text,
)
from zoo.containers.arrays import CheckpointError
from zoo.containers.opening import CHECKPOINTS, RUN_MODEL, models_in
from zoo.network.head import CLASS_LISTS, list_of
from zoo.network.preparation import check_bits


class RunDirectory:
    """The paths of a run's files, in the directory `path`."""

    def __init__(self, path: str | os.PathLike):
        self.path = expand_home(path)
        self.config = self.path / RUN_SETTINGS
        self.data = self.path / RUN_DATA
        self.extended = self.path / "extended.json"
        self.micro_batches = self.path / "micro_batches.json"
        self.skipped = self.path / "skipped_images.txt"
        self.corrections = self.path / "corrections.json"
        self.checkpoints = self.path / CHECKPOINTS
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.model = self.path / RUN_MODEL
        self.weights = self.path / "weights.npz"
        self.held_out = self.path / "held_out.npz"
        self.class_names = self.path / "class_names.txt"
        self.batch = self.path / "training_batch.png"
        self.predictions = self.path / "predictions.png"
        self.report = self.path / "report.md"
        self.page = self.path / "report.html"
        self.results = self.path / "report.json"
        self.mistakes = self.path / "mistakes.csv"
        self.lock = self.path / ".run.lock"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the directory, which is made, and removes half-written files in it."""
        with without_empty_folders(), contextlib.ExitStack() as stack:
            make_folder(self.path)
            # Read it before the attempt, at which some versions of filelock empty the
            # file.
            owner = self._owner()
            busy = f"Another run{owner} is using {self.path}"
            is_soft = stack.enter_context(lock_file(self.lock, busy, "--run_dir"))
            if not is_soft:
                with contextlib.suppress(OSError):
                    owner = f"process {os.getpid()} on {socket.gethostname()}"
                    with open_regular(self.lock, "wb", follow_links=False) as file:
                        file.write(owner.encode())
            remove_temporaries(self.path)
            # A link may lead to a folder that other runs write to.
            if not self.checkpoints.is_symlink():
                remove_temporaries(self.checkpoints)
            yield

    def _owner(self):
        try:
            text = read_text(self.lock, NOTE_BYTES, errors="replace")
        except (OSError, ValueError):
            return ""
        # Other content of the file must not reach a terminal.
        known = re.fullmatch(r"process \d{1,20} on [\w.-]{1,99}", text, re.ASCII)
        return f" ({text})" if known else ""

    def claim(self, settings: dict, *, extend: bool = False) -> "RunDirectory":
        """Writes the settings of a run, or checks that a begun run has the same.

        With `extend` a finished run may have had fewer steps; `extend` then writes.
        """
        make_folder(self.path)
        self.models()
        steps = self._extensible(settings)
        if extend and not self.is_begun():
            raise RunError(
                f"{self.path} holds no run to extend: leave out --extend, or pass the "
                "--run_dir of a finished run."
            )
        if steps is None:
            self._claim(self.config, settings, "settings")
        elif not extend:
            is_finished = self._last_step() == steps
            remedy = "--extend to train on from its end" if is_finished else ""
            self._claim(self.config, settings, "settings", remedy)
        elif (taken := self._last_step()) != steps:
            raise RunError(
                f"The newest checkpoint in {self.path} is of step {taken:,}, not of "
                f"the last, {steps:,}: finish the run by its own command, without "
                "--extend (one that stopped early is not extended)."
            )
        return self

    def extend(self, settings: dict) -> None:
        """Writes the settings of a finished run that is to have more steps, if any."""
        if (steps := self._extensible(settings)) is not None:
            after = sorted({*self.extensions(steps), steps})
            # Write this first: the settings alone would make it a run of more steps.
            write_json(self.extended, {"after": after})
            write_json(self.config, _as_read(settings))

    def extensions(self, steps: int) -> list[int]:
        """Returns after which steps a run of `steps` was extended."""
        if not self.extended.exists():
            return []
        earlier = read_json(
            self.extended,
            "copy it from a backup, or pass another --run_dir",
            lambda earlier: [int(step) for step in earlier["after"]],
        )
        # A kill while this was noted did not change the run.
        return [step for step in earlier if step < steps]

    def _extensible(self, settings):
        """Returns the steps of a begun run if it differs in having fewer, else None."""
        if not (self.is_begun() and self.config.exists()):
            return None
        earlier, now = _read(self.config), _as_read(settings)
        steps = earlier.get("steps")
        others = {*_differing(earlier, now)} - {"epochs", "warmup_steps"}
        is_more = isinstance(steps, int) and steps < now.get("steps", 0)
        return steps if others == {"steps"} and is_more else None

    def _last_step(self):
        return max(checkpoint_steps(self.checkpoints), default=0)

    def claim_data(self, facts: dict) -> None:
        """Writes the facts of a run's data, or checks that they have not changed."""
        if self.is_begun() and self.data.exists():
            # Numbers and files of images follow from the corrections.
            earlier = _read(self.data).get("corrections")
            if earlier != facts.get("corrections"):
                raise RunError(self._other_corrections(earlier))
        self._claim(self.data, facts, "data")

    def _other_corrections(self, earlier):
        if earlier is None:
            return (
                f"{self.path} holds a run without --without and --relabel: leave them "
                "out to continue it, or pass another --run_dir."
            )
        return (
            f"{self.path} holds a run with other --without or --relabel: to continue "
            f"it pass both as {self.corrections}, which has its corrections, or "
            "another --run_dir."
        )

    def changed_data(self, facts: dict) -> list[str]:
        """Returns how the data differ from those that the run began with.

        The facts are those of `claim_data`. A run without the file has none.
        """
        if not self.data.exists():
            return []
        return _differences(_read(self.data, "remove it"), _as_read(facts))

    def _claim(self, file, settings, kind, remedy=""):
        if not self.is_begun():
            write_json(file, _as_read(settings))
            return
        if not file.exists():
            raise RunError(
                f"{self.path} holds a run without its {file.name}, so its {kind} "
                "are not known: copy that file from a backup, or pass another "
                "--run_dir."
            )
        earlier = _read(file)
        if differences := _differences(earlier, _as_read(settings)):
            raise RunError(
                f"{self.path} holds a run with other {kind}: "
                f"{', '.join(differences)}. Pass the same to continue it, "
                f"{remedy and remedy + ', '}or another --run_dir."
            )

    def models(self) -> Any:
        """Returns what `models_in` finds; its errors become `RunError`."""
        try:
            return models_in(self.path)
        except CheckpointError as error:
            raise RunError(str(error)) from error

    def require(self, *files: pathlib.Path) -> None:
        """Refuses a directory without these files of a finished run, or with others."""
        self.models()
        if not self.path.is_dir():
            raise RunError(
                f"There is no run directory {self.path}: {missing_remedy(self.path)}"
            )
        for file in files:
            if not file.is_file():
                self.refuse_folder()
                raise RunError(
                    f"{self.path} has no {file.name}, so it holds no finished run: "
                    "run the command again that started it, or "
                    f"{missing_remedy(self.path)}"
                )

    def refuse_folder(self) -> None:
        """Refuses a folder of several runs, as `--seeds` and studies leave them."""
        inside = sorted(self.path.glob(f"*/{RUN_MODEL}"))
        if inside and not self.model.exists():
            raise RunError(
                f"{self.path} holds {len(inside)} runs and no model itself: pass one "
                f"of them, such as {inside[0].parent}."
            )

    def read_results(self, *more: str) -> dict:
        """Returns the `report.json` of a finished run.

        The report has what all commands need, and the entries `more`.
        """
        self.require(self.results, self.model)

        def checked(report: dict) -> dict:
            task = report.get("config", {}).get("task") or CLASSES
            if task != CLASSES:
                raise RunError(
                    f"{self.path} is a run of --task={task}, and this takes runs of "
                    "one class per photo: use keras-vit evaluate, predict or export."
                )
            if missing := [name for name in more if name not in report]:
                raise RunError(
                    f"{self.results} has no {', '.join(missing)}, so it was changed or "
                    f"is of an earlier version: {remedy}."
                )
            config = report["config"]
            config["dataset"], config["model"], report["test_examples"]
            float(report["test_accuracy"]), int(report["parameters"])
            [(row["name"], row["examples"], row["f1"]) for row in report["per_class"]]
            return report

        remedy = "remove it and give the command again that began the run, or check "
        remedy += "the path"
        return read_json(self.results, remedy, checked)

    def read_config(self) -> dict:
        """Returns the settings of the run, empty without their file."""
        if not self.config.exists():
            return {}
        remedy = f"pass {self.model}, which needs no settings, and --dataset"
        config = _read(self.config, remedy)
        why = ""
        if missing := {"dataset", "validation_fraction"} - config.keys():
            why = f"it has no {', '.join(sorted(missing))}"
        try:
            check_bits(config.get("bits"))
        except ValueError as error:
            why = str(error).removesuffix(".")
        if why:
            raise RunError(
                f"{self.config} is damaged ({why}): copy it from a backup, or {remedy}."
            )
        return config | self._dataset_of(config)

    def _dataset_of(self, config):
        """Returns the path of the run's own files, if another one is meant by now."""
        path = _read(self.data, "remove it").get("path") if self.data.exists() else ""
        # The command may have been given in another directory. Data that were moved
        # along with the run are where the relative path says.
        if path and os.path.exists(path) and not is_same(path, config["dataset"]):
            return {"dataset": path}
        return {}

    def read_class_names(self) -> tuple[str, ...]:
        """Returns the names of the classes in the head's order."""
        return read_names(self.class_names)

    def is_begun(self) -> bool:
        """Returns whether there is a run to continue.

        One that failed before its first checkpoint is none: the corrected command may
        use its directory.
        """
        return self.model.exists() or bool(checkpoint_steps(self.checkpoints))


def read_names(file: pathlib.Path) -> tuple[str, ...]:
    """Returns the names of classes in a file of one per line.

    A single line may be the name of a list of `zoo.class_names`, "imagenet2012".
    """
    try:
        text = read_text(file, TEXT_BYTES, "utf-8-sig")
    except (OSError, ValueError) as error:
        raise RunError(
            f"{file} cannot be read ({first_line(error)}): write one name per line in "
            "UTF-8, in the order of the model's outputs, or move it away."
        ) from error
    # An editor may drop the last line break, or add a byte order mark.
    names = tuple(text.removesuffix("\n").split("\n"))
    if len(names) != 1 or names[0] not in CLASS_LISTS:
        return names
    try:
        return texts_of(names[0])
    except OSError as error:
        raise RunError(
            f"{file} means the list {names[0]}, which is not available: {error} Or "
            "write its names there, one per line."
        ) from error


def how_to_name(classes: int) -> str:
    """Returns how to name the classes of a model that has `classes`, for messages."""
    known = list_of(classes)
    hint = f", or {known} alone if they are ImageNet's" if known else ""
    return (
        "write the names to class_names.txt beside the model, one per line in the "
        f"order of its outputs{hint}"
    )


def _as_read(settings):
    # Tuples become lists as they will when read back.
    return json.loads(json.dumps(settings))


def _differences(earlier, now):
    return [
        f"{name} {earlier.get(name)!r} (now {now.get(name)!r})"
        for name in _differing(earlier, now)
    ]


def _differing(earlier, now):
    return [
        name
        for name in sorted(now.keys() | earlier.keys())
        if not _agree(name, earlier.get(name), now.get(name))
    ]


def _agree(name, earlier, now):
    if name == "path":  # Files may be moved.
        return True
    if name == "dataset" and isinstance(earlier, str) and isinstance(now, str):
        return is_same(earlier, now)
    if name == "micro_batches" and earlier == "auto":
        # The chosen number may be too much for another machine.
        return True
    return earlier == now


def _read(file, remedy="pass another --run_dir"):
    return read_json(file, f"copy it from a backup, or {remedy}")
