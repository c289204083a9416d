"""The classifier that a search has found, as a task that tests and reports it."""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import numpy as np

from train.data.sources.splits import Source, Split
from train.engine.choices import LOSSES
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.reports.contents import Section
from train.run import building
from train.run.classification import FineTuning
from train.run.task import about_loss
from train.run.trained_parts import count_parameters
from train.scoring import kept_test
from train.scoring.temperature import log_losses
from train.scoring.uneven import accuracies
from train.search import heads, table
from train.search.budget import FILE, Budget
from train.search.options import OF_SEARCH, Options
from train.search.table import Tried

# Settings of a recipe that hold without a training, too.
_OF_ANY_SEARCH = (
    *("dataset", "model", "weights", "image_size", "bits", "flip", "seed", "precision"),
    *("image_column", "label_column", "split_column", "task"),
    *("train_examples", "test_examples", "validation_fraction"),
)


class Found(FineTuning):
    """What a search of the best classifier has found.

    Attributes:
        options: `Options` of the search.
        answer: `keras.Model`, the classifier.
        tried: rows of what was tried.
        reasons: sentences about what was chosen, and why.
        seconds: float, what the search has taken.
        best: `Recipe` of the network that answers best, or None.
        stage: `Recipe` of the training that is part of the answer, or None.
        features: function of a split to what the head reads, (photos, size), or None
            where the network computes it.
        held_out: logits of the answer for photos of which the validation part is last.
        used: `Split`, photos of the training part whose features are known.
        test_examples: int, of the whole test part, of which a part may be tested.
    """

    answer: keras.Model
    tried: Sequence[Tried] = ()
    reasons: Sequence[str] = ()
    seconds: float = 0.0
    best: Recipe | None = None
    stage: Recipe | None = None
    features: Callable[[Split], np.ndarray] | None = None
    held_out: np.ndarray
    used: Split | None = None
    test_examples: int = 0

    def __init__(self, recipe: Recipe, options: Options):
        super().__init__(recipe)
        self.options = options

    @property
    def deciding(self) -> dict:
        # How long a training in it is, the clock decides.
        lengths = ("steps", "warmup_steps", "epochs")
        own = {
            name: value
            for name, value in super().deciding.items()
            if name not in lengths
        }
        return own | self._of_options()

    def is_finished(self, directory: RunDirectory) -> bool:
        """Returns whether the search has ended: a first answer has a report, too."""
        path = directory.path / FILE
        ended = path.exists() and "seconds" in Budget(0.0, path).facts
        return ended and super().is_finished(directory)

    def build(self, source: Source) -> None:
        self.source = source
        self.model = self.network = self.answer
        self.loss = building.loss(self.recipe, source)

    def training_results(self, directory: RunDirectory) -> dict:
        return {
            "loss_function": LOSSES["softmax"].title,
            **self._of_training(directory),
            "train_examples": self.source.train.num_examples,
            "parameters": count_parameters(self.network.weights),
        }

    def _of_training(self, directory):
        if self.stage is None:
            return {}
        taken, photos = self.steps(directory), self.source.train.num_examples
        return {
            **about_loss(self.stage),
            "steps": taken,
            "epochs": taken * self.stage.batch_size / photos,
        }

    def log_of_training(self, directory: RunDirectory) -> MetricLog | None:
        return None if self.stage is None else super().log_of_training(directory)

    def validation_results(self, log: MetricLog | None) -> dict[str, float]:
        labels = self.source.validation.labels()
        logits = self.held_out[-len(labels) :]
        shares = accuracies(labels, logits.argmax(axis=1), self.train_counts)
        measured = shares | {"loss": float(log_losses(logits, labels).mean())}
        return {f"validation_{name}": value for name, value in measured.items()}

    @staticmethod
    def steps(directory: RunDirectory) -> int:
        """Returns how many steps of the training were taken."""
        steps, _ = MetricLog(directory.metrics).series("loss")
        return int(steps[-1]) if len(steps) else 0

    def head_features(self) -> kept_test.Features | None:
        return self.features or super().head_features()

    def photos_to_know(self) -> Split:
        return self.used or super().photos_to_know()

    def more_results(self) -> dict:
        """Returns the budget, what was used of it, and what an answer costs."""
        return {
            "budget_seconds": 60.0 * self.options.minutes,
            "seconds": self.seconds,
            "networks": max(len(heads.members(self.model)), 1),
            "operations_of_one_network": heads.cost(self.model),
        }

    def notes(self) -> list[str]:
        notes, networks = [], len(heads.members(self.model))
        if networks:
            cost = heads.cost(self.model)
            times = "more than" if cost is None else f"{cost:.2g} times"
            notes.append(
                f"The model averages {networks} networks: an answer takes {times} the "
                "operations of the largest."
            )
        tested = self.source.test.num_examples
        if tested < self.test_examples:
            notes.append(
                f"{tested:,} of the {self.test_examples:,} test images fit the time: "
                "keras-vit evaluate tests all."
            )
        return notes

    def sections(self) -> list[Section]:
        return [table.section(self.tried, self.reasons)]

    def written_settings(self, directory: RunDirectory) -> dict:
        """Returns the settings of what answers: of its training too, if it has one."""
        recipe = self.stage or self.best or self.recipe
        settings = dataclasses.asdict(recipe) | recipe.in_use()
        if self.stage is None:
            settings = {name: settings[name] for name in _OF_ANY_SEARCH}
        else:
            # The clock has decided how long it was.
            del settings["warmup_steps"]
            of_training = self._of_training(directory)
            settings |= {name: of_training[name] for name in ("steps", "epochs")}
        height, width = self.network.input_shape[1:3]
        settings["image_size"] = height if height == width else (height, width)
        for name in OF_SEARCH:
            settings[name] = getattr(self.options, name)
        return {name: value for name, value in settings.items() if value != ""}

    def _of_options(self):
        options = {name: getattr(self.options, name) for name in OF_SEARCH}
        options["crop"] = self.options.crop_of(self.recipe)
        if self.options.keeps_optimizer:
            # Runs of earlier versions have it only where it is true.
            options["keeps_optimizer"] = True
        return options

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        table.draw(directory.path / table.PICTURE, self.tried)
        results = super().report(directory, measured, command)
        if results["test_examples"] < self.test_examples:
            results["tested"] = (
                f"{results['test_examples']:,} of {self.test_examples:,}"
            )
        else:
            results["tested"] = f"all {self.test_examples:,}"
        return results
