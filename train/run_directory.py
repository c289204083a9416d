"""The directory of a run: what is where, and whose it is."""

import json

from train.errors import RunError
from train.files import make_folder, whole_file


class RunDirectory:
    """The files of a run.

    Args:
        path: str or path, made if missing.
        settings: dict of what decides the run's result, to JSON. A directory that
            holds checkpoints or the model of other settings is left alone.

    Raises:
        RunError: the directory cannot be written, or holds another run.
    """

    def __init__(self, path, settings):
        self.path = make_folder(path)
        self.config = self.path / "config.json"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.model = self.path / "model.keras"
        self.class_names = self.path / "class_names.txt"
        self.predictions = self.path / "predictions.png"
        self.report = self.path / "report.md"
        # Tuples become lists as they will when read back.
        settings = json.loads(json.dumps(settings))
        if self.config.exists() and self._is_begun():
            self._compare(settings)
        else:
            with whole_file(self.config) as temporary:
                temporary.write_text(json.dumps(settings, indent=2) + "\n")

    def _is_begun(self):
        # A run that stopped at an error before its first checkpoint leaves nothing to
        # go on with: the mended command may have its directory.
        return self.model.exists() or any(self.checkpoints.glob("step-*.npz"))

    def _compare(self, settings):
        try:
            earlier = json.loads(self.config.read_text())
            names = sorted(settings.keys() | earlier.keys())
        except (ValueError, AttributeError, OSError) as error:
            raise RunError(
                f"{self.config} is damaged ({error}): pass another --run_dir."
            ) from error
        differences = [
            f"{name} {earlier.get(name)!r} (now {settings.get(name)!r})"
            for name in names
            if earlier.get(name) != settings.get(name)
        ]
        if differences:
            raise RunError(
                f"{self.path} holds a run with other settings: "
                f"{', '.join(differences)}. Pass the same to go on with it, or another "
                "--run_dir."
            )
