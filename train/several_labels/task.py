"""The task of several labels, for `train.run.training.run`."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from train.common.errors import RunError
from train.data.sources.splits import Source
from train.engine import loop
from train.engine.choices import LOSSES
from train.engine.losses import balanced_pos_weight
from train.engine.step import Trainer
from train.models.run_directory import RunDirectory
from train.reports import terminal
from train.run import building
from train.run.supervised import Supervised
from train.several_labels import report
from train.several_labels.metrics import average_precisions, best_thresholds
from train.several_labels.probe import logistic
from zoo.network.head import sigmoid


def all_right(logits: keras.KerasTensor, labels: keras.KerasTensor) -> Any:
    """Returns 1.0 for each example all of whose labels are answered right, else 0.0.

    Both are (batch, labels); a label is answered where its logit is above 0, that is
    where its probability is above a half, and is there where it is above 0.5.
    """
    is_right = ops.equal(ops.greater(logits, 0), ops.greater(labels, 0.5))
    return ops.cast(ops.all(is_right, axis=-1), "float32")


class SeveralLabels(Supervised):
    """Trains a model that gives a photo any number of labels.

    The probability from which on a photo has a label is chosen on the held-out photos,
    and kept in the model.

    Example:
        >>> from train import recipes
        >>> recipe = recipes.for_dataset("labels.csv").override(loss="asymmetric")
        >>> SeveralLabels(recipe.override(task="labels")).evaluated
        ('validation', 'test')
    """

    evaluated = ("validation", "test")
    accuracy = staticmethod(all_right)

    @property
    def about_labels(self) -> str:
        return f"{len(self.source.class_names)} labels"

    def check_data(self, source: Source) -> None:
        """Refuses labels that all photos have, and a test without any label."""
        if not (source.test.labels() > 0).any():
            raise RunError(
                f"No photo of {source.test.name} has a label, so nothing can be "
                "tested: add photos with labels to it."
            )
        counts = source.train.class_counts(len(source.class_names))
        always = np.flatnonzero(counts == source.train.num_examples)
        if len(always):
            raise RunError(
                f"Every photo of {source.name} to train on has the label "
                f"{source.class_names[always[0]]!r}, so there is nothing to learn of "
                "it: add photos without it, or remove it."
            )

    def fit_head(
        self, features: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fits a logistic regression for each label."""
        return logistic(features, labels > 0)

    def make_loss(self, source: Source) -> Callable:
        recipe = self.recipe
        weights = building.class_weights(
            recipe,
            source,
            balanced=lambda counts: balanced_pos_weight(
                counts, source.train.num_examples
            ),
        )
        given = {} if weights is None else {"pos_weight": weights}
        return LOSSES[recipe.loss].of(recipe, **given)

    def evaluate(
        self, trainer: Trainer, batches: Iterable, on_batch: Callable | None = None
    ) -> dict:
        """Returns loss, accuracy, mean average precision, scores and truth.

        The accuracy is the share of photos all of whose labels are right.
        """
        parts, loss = loop.evaluate(trainer, batches, _pair, on_batch, sigmoid)
        scores, truth = map(np.concatenate, zip(*parts, strict=True))
        precisions = average_precisions(scores, truth)
        measured = {
            "loss": loss,
            "accuracy": float(((scores > 0.5) == truth).all(axis=1).mean()),
            "scores": scores,
            "truth": truth,
        }
        # Photos without any label have no precision.
        if truth.any():
            measured["mean_average_precision"] = float(np.nanmean(precisions))
        return measured

    def conclude(self, measured: dict[str, dict]) -> None:
        """Gives the head its thresholds, of the held-out photos where there are any."""
        held_out = measured.get("validation")
        self.pooled: int | None = None
        thresholds = np.full(len(self.source.class_names), 0.5)
        if held_out is not None:
            best = best_thresholds(held_out["scores"], held_out["truth"])
            thresholds, self.pooled = best.values, int(best.is_pooled.sum())
        rounded = tuple(float(f"{one:.6g}") for one in thresholds)
        self.model.layers[-1].thresholds = rounded

    def draw_predictions(
        self,
        directory: RunDirectory,
        images: np.ndarray,
        labels: np.ndarray,
        values: np.ndarray,
    ) -> None:
        report.draw_predictions(
            directory.predictions,
            images,
            labels > 0,
            values >= np.array(self.model.layers[-1].thresholds),
            self.source.class_names,
            f"{self.source.name}: predictions of {directory.model.name}, loaded again",
        )

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        source, tested = self.source, measured["test"]
        results = self.run_results(directory, measured, command)
        return report.write(
            directory.path,
            report.Judged(
                source.test,
                source.class_names,
                tested["scores"],
                tested["truth"],
                np.array(self.model.layers[-1].thresholds),
                source.train.class_counts(len(source.class_names)),
            ),
            settings=self.written_settings(directory),
            results=results,
            notes=[_about_thresholds(self.pooled, len(source.class_names))],
            history=self.log_of_training(directory),
        ) | {"model": str(directory.model)}

    @staticmethod
    def summary(results: dict) -> str:
        return terminal.of_sentences(results)


def _pair(labels, scores):
    return scores, labels > 0.5


def _about_thresholds(pooled, labels):
    """Says where the thresholds are from."""
    if pooled is None:
        return (
            "No photos were held out, so a label is given from a probability of a half "
            "on: pass --validation_fraction=0.1 to have thresholds chosen."
        )
    text = "The thresholds have the best F1 on the held-out photos."
    if pooled:
        text += (
            f" {pooled:,} of the {labels:,} labels are too rare there: they share one."
        )
    return text
