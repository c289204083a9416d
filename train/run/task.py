"""The interface of what a run trains: a model, its data, its loss and its report."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
from numpy.typing import ArrayLike

from train.data.sources.splits import Source
from train.data.transforms import keras_layer
from train.engine.choices import LOSSES
from train.engine.metric_log import MetricLog
from train.engine.step import Devices, Trainer
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run.trained_parts import count_parameters
from zoo.common.safe_text import counted, printable


class Task:
    """A model, its loss, its evaluation and its report, for one run.

    `train.run.training.run` does the rest: devices, data, steps, checkpoints.

    Args:
        recipe: `train.recipes.Recipe`.
        augmentation_layer: None, or a layer of Keras or keras-cv that training images
            go through after the recipe's augmentation: docs/augmentation.md.

    Attributes:
        evaluated: names of the splits that are evaluated at the end.
        finish: None, or the `finish` of `train.data.pipeline.training_batches`.
        loss: function of logits and labels to the losses of single examples.
        accuracy: function of logits and labels to the accuracies of single examples.
        rate_scales: None, or dict of paths of variables to factors of their rate.
        source: the data; like the next two, set by `build`.
        model: `keras.Model` that is trained.
        network: the part of it that is kept.
        micro_batches: in how many parts the batch of a step is computed, once the model
            is built.
    """

    evaluated: tuple[str, ...] = ("test",)
    rate_scales: dict | None = None
    source: Source
    model: keras.Model
    network: keras.Model
    loss: Any
    accuracy: Any
    finish: Callable | None = None
    micro_batches: int | None = None

    def __init__(self, recipe: Recipe, augmentation_layer: keras.Layer | None = None):
        self.recipe = recipe
        self.augmentation_layer = augmentation_layer

    @property
    def deciding(self) -> dict:
        """The settings that decide the result, a dict that JSON can have."""
        settings = self.recipe.deciding
        if self.augmentation_layer is not None:
            described = keras_layer.described(self.augmentation_layer)
            settings["augmentation_layer"] = described
        return settings

    @property
    def batch_settings(self) -> dict:
        """The arguments of `train.data.pipeline.training_batches` that the task has."""
        recipe = self.recipe
        return {
            "seed": recipe.seed,
            "crop": recipe.crop,
            "flip": recipe.flip,
            "augmentation": recipe,
            "augmentation_layer": self.augmentation_layer,
        }

    def check_devices(self, devices: Devices) -> None:
        """Raises a `RunError` where these devices cannot do the task."""

    def check_data(self, source: Source) -> None:
        """Raises a `RunError` where the task cannot be learned from the data."""

    def is_finished(self, directory: RunDirectory) -> bool:
        """Returns whether a run directory has the results and the model of the task."""
        return directory.results.is_file() and directory.model.is_file()

    def build(self, source: Source) -> None:
        """Builds the model for this data, in the scope of the devices."""
        raise NotImplementedError

    def begin(self) -> None:
        """Gives the model, which is built, what it begins with besides its weights.

        A run that goes on begins with its checkpoint, and one of several hosts without.
        """

    def evaluate(
        self, trainer: Trainer, batches: Iterable, on_batch: Callable | None = None
    ) -> dict:
        """Returns a dict with floats `loss` and `accuracy`, and what `report` needs.

        `on_batch` is called with the number of examples done so far.
        """
        raise NotImplementedError

    def conclude(self, measured: dict[str, dict]) -> None:
        """Gives the model what an evaluation of the splits showed, before it is saved.

        `measured` has what `evaluate` returned for each name in `evaluated` that the
        data has.
        """

    def draw_batch(
        self, path: pathlib.Path, images: ArrayLike, labels: ArrayLike
    ) -> None:
        """Draws the first training batch, if the task has a picture of it."""

    def save(self, directory: RunDirectory) -> None:
        """Writes the model and its pictures into a `RunDirectory`."""
        raise NotImplementedError

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        """Writes the report into a `train.models.run_directory.RunDirectory`.

        `measured` has what `evaluate` returned for each name in `evaluated` that the
        data has. Returns the results, as in `report.json`, and the paths of the files.
        """
        raise NotImplementedError

    @staticmethod
    def summary(results: dict) -> str:
        """Returns what the command prints at its end."""
        raise NotImplementedError

    @property
    def about_labels(self) -> str:
        """What the labels of the images are, for `announcement`."""
        return f"{len(self.source.class_names)} classes"

    def announcement(self, directory: RunDirectory) -> str:
        """Returns what a run prints as it begins."""
        source, recipe, network = self.source, self.recipe, self.network
        validation = source.validation.num_examples if source.validation else 0
        epochs = recipe.steps * recipe.batch_size / source.train.num_examples
        return printable(
            f"{source.name}: {source.train.num_examples:,} training, {validation:,} "
            f"validation and {source.test.num_examples:,} test images of "
            f"{self.about_labels}\n"
            f"{network.name}: {count_parameters(network.weights):,} parameters, "
            f"weights {recipe.weights or 'random'}, images "
            f"{network.input_shape[1]}x{network.input_shape[2]}\n"
            f"{counted(recipe.steps, 'step')} of {recipe.batch_size} images, "
            f"{epochs:,.3g} epochs, in {directory.path}",
            lines=True,
        )

    def training_results(self, directory: RunDirectory) -> dict:
        """Returns the results that all tasks have: loss, examples, steps, size."""
        recipe = self.recipe
        steps = recipe.steps
        if recipe.early_stopping:
            # The weights are those of the best validation.
            steps, _ = MetricLog(directory.metrics).best_validation()
        extensions = directory.extensions(recipe.steps)
        examples = self.source.train.num_examples
        return {
            **about_loss(recipe, self.augmentation_layer),
            "train_examples": examples,
            "steps": steps,
            "epochs": steps * recipe.batch_size / examples,
            **({"extended_after": extensions} if extensions else {}),
            "parameters": count_parameters(self.network.weights),
        }

    def written_settings(self, directory: RunDirectory) -> dict:
        """Returns the settings for the report, with what was chosen for those open."""
        recipe = self.recipe
        settings = dataclasses.asdict(recipe) | recipe.in_use()
        settings["micro_batches"] = self.micro_batches
        if directory.extensions(recipe.steps):
            # It is not a run of the recipe, whose rates were others.
            settings["published"] = ""
        return {name: value for name, value in settings.items() if value != ""}


def about_loss(
    recipe: Recipe, augmentation_layer: keras.Layer | None = None
) -> dict[str, str]:
    """Returns the loss of training and validation, and what differs in training."""
    loss = [LOSSES[recipe.loss].title]
    if recipe.label_smoothing:
        loss.append(f"label smoothing {recipe.label_smoothing:g}")
    if recipe.class_weights is not None:
        is_balanced = recipe.class_weights == "balanced"
        loss.append("balanced class weights" if is_balanced else "class weights")
    # Frozen models have no dropout, see `train.run.building.model`.
    drops = not recipe.frozen
    parts = {
        f"{recipe.crop} crop": recipe.crop != "resize",
        "flip": recipe.flip,
        **dict.fromkeys(recipe.augmentation_titles, True),
        f"layer {type(augmentation_layer).__name__}": augmentation_layer is not None,
        f"dropout {recipe.dropout:g}": drops and recipe.dropout,
        f"stochastic depth {recipe.stochastic_depth_rate:g}": (
            drops and recipe.stochastic_depth_rate
        ),
        "weights that are not averaged": recipe.average_decay,
    }
    training_only = ", ".join(part for part, is_there in parts.items() if is_there)
    return {
        "loss_function": ", ".join(loss),
        "training_only": training_only or "nothing",
    }


def speed(log: MetricLog) -> dict[str, float]:
    """Returns the wall time of all steps, and the training images per second.

    Waiting for images, compiling, validations and checkpoints are in it, what a kill
    undid is not. Empty where no step is logged.
    """
    _, seconds = log.series("seconds")
    if not len(seconds):
        return {}
    _, rates = log.series("images_per_second")
    total = float(seconds.sum())
    return {
        "seconds": total,
        "images_per_second": float((rates * seconds).sum()) / total,
    }
