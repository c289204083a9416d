"""The task of a number, for `train.run.training.run`."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from train.common.errors import RunError
from train.data.sources.splits import Source
from train.engine import loop
from train.engine.step import Trainer
from train.models.run_directory import RunDirectory
from train.numbers import report
from train.reports import terminal
from train.reports.figures import draw_grid
from train.run import building
from train.run.supervised import Supervised
from train.scoring.probe_fits import Standard

# Strengths of the L2 penalty of the probe, one of which leave-one-out chooses.
_L2 = np.geomspace(1, 1e5, 11)


class Number(Supervised):
    """Trains a model that answers with a number.

    The loss sees numbers less their mean and over their standard deviation, those of
    the photos to train on; the head of the model that is saved answers in their units.

    Attributes:
        mean: float, of the numbers to train on.
        deviation: float, their standard deviation.

    Example:
        >>> from train import recipes
        >>> recipe = recipes.for_dataset("ages.csv").override(task="number")
        >>> Number(recipe.override(loss="huber")).evaluated
        ('validation', 'test')
    """

    evaluated = ("validation", "test")
    mean: float
    deviation: float

    def check_data(self, source: Source) -> None:
        """Refuses photos with parts of others, and numbers that are all the same."""
        if self.recipe.cutmix:
            raise RunError(
                "--cutmix makes a number of two photos that says nothing of either: "
                "leave it out, or pass --mixup."
            )
        numbers = source.train.labels()
        if np.ptp(numbers) == 0:
            raise RunError(
                f"The {len(numbers):,} photos of {source.name} to train on all have "
                f"the number {numbers[0, 0]:g}: pass more --train_examples, or add "
                "photos with others."
            )

    @property
    def about_labels(self) -> str:
        return f"a number each, {self.mean:.4g} in the mean"

    def build(self, source: Source) -> None:
        numbers = source.train.labels().astype(np.float64)
        self.mean, self.deviation = float(numbers.mean()), float(numbers.std())
        super().build(source)

    def make_loss(self, source: Source) -> Callable:
        loss = building.loss(self.recipe, source)
        return lambda numbers, labels: loss(numbers, self._standard(labels))

    def accuracy(self, numbers: keras.KerasTensor, labels: keras.KerasTensor) -> Any:
        """Returns what each example adds to R2, the share of the variance explained.

        Its mean over examples is 1 at best, and what logs of training call accuracy.
        """
        errors = ops.cast(numbers, "float32") - self._standard(labels)
        return 1.0 - ops.square(errors[:, 0])

    def _standard(self, labels):
        return (ops.cast(labels, "float32") - self.mean) / self.deviation

    def fit_head(
        self, features: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fits a ridge regression, whose penalty leave-one-out chooses."""
        from sklearn.linear_model import RidgeCV

        standard = Standard(features)
        targets = (labels[:, 0].astype(np.float64) - self.mean) / self.deviation
        fitted = RidgeCV(_L2).fit(standard(features), targets)
        kernel, bias = standard.folded(fitted.coef_[:, None], fitted.intercept_)
        return kernel.astype("float32"), bias.astype("float32")

    def evaluate(
        self, trainer: Trainer, batches: Iterable, on_batch: Callable | None = None
    ) -> dict:
        """Returns loss, R2, mean absolute error, answers and truth."""
        parts, loss = loop.evaluate(
            trainer, batches, lambda *pair: pair, on_batch, np.asarray
        )
        truth, standard = map(np.concatenate, zip(*parts, strict=True))
        truth = truth[:, 0].astype(np.float64)
        answers = self.mean + self.deviation * standard[:, 0].astype(np.float64)
        errors = answers - truth
        # One photo, or photos alike, have no variance of their own.
        variance = float(np.var(truth)) or self.deviation**2
        return {
            "loss": loss,
            "r2": 1.0 - float(np.mean(errors**2)) / variance,
            "mean_absolute_error": float(np.abs(errors).mean()),
            "answers": answers,
            "truth": truth,
        }

    def conclude(self, measured: dict[str, dict]) -> None:
        """Lets the head answer in the units of the numbers."""
        head = self.model.layers[-1]
        kernel, bias = map(ops.convert_to_numpy, (head.kernel, head.bias))
        head.kernel.assign(self.deviation * kernel)
        head.bias.assign(self.mean + self.deviation * bias)

    def draw_batch(
        self, path: pathlib.Path, images: ArrayLike, labels: ArrayLike
    ) -> None:
        numbers = np.asarray(labels)[:, 0]
        titles = [f"{number:.4g}" for number in numbers]
        draw_grid(path, "the first training batch", np.asarray(images), titles)

    def draw_predictions(
        self,
        directory: RunDirectory,
        images: np.ndarray,
        labels: np.ndarray,
        values: np.ndarray,
    ) -> None:
        title = f"{self.source.name}: predictions of {directory.model.name}"
        report.draw_predictions(
            directory.predictions, images, labels[:, 0], values[:, 0], title
        )

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        source, tested = self.source, measured["test"]
        results = self.run_results(directory, measured, command)
        results |= {
            "mean_of_training": self.mean,
            "deviation_of_training": self.deviation,
        }
        written = report.write(
            directory.path,
            source.test,
            tested["answers"],
            tested["truth"],
            trained_on=source.train.labels(),
            settings=self.written_settings(directory),
            results=results,
            history=self.log_of_training(directory),
        )
        return written | {"model": str(directory.model)}

    @staticmethod
    def summary(results: dict) -> str:
        return terminal.of_sentences(results)
