"""Fine-tuning and pre-training: the tasks that end in a classifier."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

import keras_vit
from keras_vit.structure import architectures
from train.common.errors import RunError
from train.data.sources.splits import Source, Split
from train.engine import loop
from train.engine.losses import count_correct
from train.engine.metric_log import MetricLog
from train.engine.step import Trainer
from train.models.run_directory import RunDirectory
from train.reports import terminal
from train.reports.answers import answers_of
from train.reports.contents import Section
from train.reports.figures import write_predictions_picture
from train.reports.report import write_report
from train.run.supervised import Supervised
from train.run.task import speed
from train.scoring import kept_test
from train.scoring.learning_curve import Point
from train.scoring.metrics import classification_summary
from train.scoring.ranked import joined, ranked
from train.scoring.uneven import accuracies

# Counting the classes of more whose labels are in the records, as of all ImageNet,
# would take minutes of reading.
_COUNTED_EXAMPLES = 200_000


class FineTuning(Supervised):
    """Trains a classifier, from released weights or from scratch.

    Example:
        >>> from train import recipes
        >>> FineTuning(recipes.for_dataset("cifar100")).evaluated
        ('test',)
    """

    accuracy = staticmethod(count_correct)
    # The accuracy of a probe on the test images and a learning curve, where measured.
    probe: float | None = None
    curve: Sequence[Point] = ()

    @property
    def train_counts(self) -> np.ndarray | None:
        """Counts the photos of each class to train on; None where that takes long."""
        train, names = self.source.train, self.source.class_names
        if train.known_labels is None and train.num_examples > _COUNTED_EXAMPLES:
            return None
        return train.class_counts(len(names))

    def begin(self) -> None:
        """Begins with a head of zeros, as the paper does; a search begins otherwise."""

    def check_data(self, source: Source) -> None:
        if len(source.class_names) < 2:
            raise RunError(
                f"{source.name} has only one class, {source.class_names[0]}: add the "
                "images of at least one other class."
            )

    def evaluate(
        self, trainer: Trainer, batches: Iterable, on_batch: Callable | None = None
    ) -> dict:
        """Returns loss, accuracies that matter, and the `Ranked` of the answers."""
        parts, loss = loop.evaluate(trainer, batches, ranked, on_batch)
        answered = joined(parts)
        shares = accuracies(answered.labels, answered.predicted, self.train_counts)
        return {"loss": loss, **shares, "ranked": answered}

    def draw_predictions(
        self,
        directory: RunDirectory,
        images: np.ndarray,
        labels: np.ndarray,
        values: np.ndarray,
    ) -> None:
        name, model = self.source.name, directory.model.name
        write_predictions_picture(
            directory.predictions,
            images,
            labels,
            values,
            self.source.class_names,
            title=f"{name}: predictions of {model}, loaded again",
        )

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        source, tested = self.source, measured["test"]
        log = self.log_of_training(directory)
        answered = tested["ranked"]
        results = {
            "test_loss": tested["loss"],
            **self.training_results(directory),
            "command": command,
            **({} if log is None else speed(log)),
            **self.more_results(),
        }
        if source.validation:
            results["validation_examples"] = source.validation.num_examples
            results |= self.validation_results(log)
        kept_test.keep(
            directory.held_out,
            answered,
            self.photos_to_know(),
            source.test,
            self.head_features(),
        )
        summary = classification_summary(answered, source.class_names)
        if notes := self.notes():
            summary["notes"] = notes
        if (counts := self.train_counts) is not None:
            for row, count in zip(summary["per_class"], counts, strict=True):
                row["train_examples"] = int(count)
        if source.skipped:
            results["skipped_examples"] = len(source.skipped)
            results["skipped_are_in"] = directory.skipped.name
        written = write_report(
            directory.path,
            config=self.written_settings(directory),
            summary=summary,
            results=results,
            history=log,
            answers=answers_of(source.test, answered, source.class_names),
            sections=self.sections(),
            probe=self.probe,
            curve=self.curve,
        )
        everything = "all " if self.recipe.test_examples is None else ""
        return {
            **written,
            "tested": f"{everything}{summary['examples']:,}",
            "page": str(directory.page),
            "report": str(directory.report),
            "model": str(directory.model),
            "weights": str(directory.weights) if directory.weights.exists() else None,
        }

    def validation_results(self, log: MetricLog | None) -> dict[str, float]:
        """Returns how the weights kept answer held-out photos.

        These are `validation_accuracy`, `validation_loss`, and where it leads the
        `validation_balanced_accuracy`.
        """
        return log.validation(best=bool(self.recipe.early_stopping))

    def head_features(self) -> kept_test.Features | None:
        """Returns the function of a split to what the head reads, None without any."""
        return kept_test.features_by(self.network, self.source)

    def photos_to_know(self) -> Split:
        """Returns photos of the training part, some of which are to be known."""
        return self.source.train

    def more_results(self) -> dict:
        """Returns further results of the report."""
        return {}

    def notes(self) -> list[str]:
        """Returns paragraphs that the report begins with."""
        return []

    def sections(self) -> list[Section]:
        """Returns further sections of the report."""
        return []

    @staticmethod
    def summary(results: dict) -> str:
        names = {"report": "page", "model": "model", "weights": "weights"}
        paths = {name: results[key] for name, key in names.items() if results[key]}
        width = max(map(len, paths))
        tested = f"{results['tested']} test images"
        return "\n".join(
            [
                *terminal.accuracies(results, "test", "test accuracy", tested),
                *terminal.verdict(results),
                *(f"{name:{width}} {path}" for name, path in paths.items()),
            ]
        )


class PreTraining(FineTuning):
    """Trains a classifier, and writes its weights in the released naming too."""

    def save(self, directory: RunDirectory) -> None:
        """Writes `weights.npz` besides, where the model has a released naming."""
        super().save(directory)
        if architectures.of_model(self.model).files is not None:
            keras_vit.save_released_weights(self.model, directory.weights)
