"""The directory of a run: what is where, and whose it is."""

import json
import pathlib

from train.data.kinds import is_same
from train.errors import RunError
from train.files import make_folder, whole_file


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

    def claim(self, settings):
        """Makes the directory that of a run; what is there of the same run stays.

        Args:
            settings: dict of what decides the run's result, to JSON. A directory that
                holds checkpoints or the model of other settings is left alone.

        Returns:
            The directory itself.

        Raises:
            RunError: the directory cannot be written, or holds another run.
        """
        make_folder(self.path)
        self._claim(self.config, settings, "settings")
        return self

    def claim_data(self, facts):
        """Makes sure that a run goes on with the data that it began with.

        Args:
            facts: dict of what is known of the data, to JSON.

        Raises:
            RunError: the directory cannot be written, or holds a run on other data.
        """
        self._claim(self.data, facts, "data")

    def _claim(self, file, settings, kind):
        # Tuples become lists as they will when read back.
        settings = json.loads(json.dumps(settings))
        if file.exists() and self._is_begun():
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
        try:
            earlier = json.loads(file.read_text(encoding="utf-8"))
            names = sorted(settings.keys() | earlier.keys())
        except (ValueError, AttributeError, OSError) as error:
            raise RunError(
                f"{file} is damaged ({error}): pass another --run_dir."
            ) from error
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
    return earlier == now
