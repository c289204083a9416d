"""What tasks have in common whose model has a head for the labels of photos."""

import pathlib
from collections.abc import Callable

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.structure import set_bits
from train.common.errors import RunError
from train.common.files import whole_file, write_text
from train.data import pipeline
from train.data.sources.splits import Source
from train.data.sources.subset import limited
from train.engine.metric_log import MetricLog
from train.engine.step import Devices
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.reports.figures import PICTURES, draw_batch
from train.run import building
from train.run.task import Task, speed
from train.run.trained_parts import choose_trainable, count_parameters, layer_rates
from train.scoring import kept_test
from train.tasks import kind_of_task
from zoo.network.head import Answers

# The head is fitted to so many photos at most.
_PROBED = 5_000


class Supervised(Task):
    """Trains a model whose head answers with what the labels of photos say.

    `train.tasks.TASKS` says what that is, of the recipe's `task`.
    """

    def check_devices(self, devices: Devices) -> None:
        """Refuses mixed examples on several hosts, and batch norms on devices."""
        recipe = self.recipe
        if recipe.mixes and devices.has_hosts:
            raise RunError(
                "Mixup and CutMix take the examples of a whole batch, of which each "
                "worker has a part: leave --mixup and --cutmix out, or use one machine."
            )
        if devices.count > 1 and building.architecture_of(recipe).batch_norm:
            raise RunError(
                f"{recipe.model} normalises batches, and each device would keep "
                "averages of its own: pass --strategy=one, or --model=BiT-R50x1, which "
                "needs none."
            )

    def build(self, source: Source) -> None:
        recipe = self.recipe
        self.source = source
        self.model = self.network = building.model(recipe, len(source.class_names))
        head = self.model.layers[-1]
        head.class_names = source.class_names
        head.problem_type = kind_of_task(recipe.task).problem_type
        set_bits(self.model, recipe.bits)
        choose_trainable(self.model, frozen=recipe.frozen, lora_rank=recipe.lora_rank)
        self.loss = self.make_loss(source)
        if recipe.layer_decay < 1:
            self.rate_scales = layer_rates(self.model, recipe.layer_decay)

    def begin(self) -> None:
        """Begins with a probe on the features of photos as the head.

        A head of zeros learns little in a few epochs. Random weights and another layer
        before the head have no features to begin with.
        """
        if self.recipe.weights is None or self.recipe.pre_logits:
            return
        features = kept_test.features_by(self.network, self.source)
        if features is None:
            return
        print("fitting the head to features of the photos")
        photos = limited(self.source.train, _PROBED)
        kernel, bias = self.fit_head(features(photos), photos.labels())
        head = self.model.layers[-1]
        head.kernel.assign(kernel)
        head.bias.assign(bias)

    def fit_head(
        self, features: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns kernel (features, outputs) and bias (outputs,) fitted to labels.

        Features are (photos, features), labels as `Split.labels` has them.
        """
        raise NotImplementedError

    def make_loss(self, source: Source) -> Callable:
        """Returns the loss of logits and labels of the data."""
        return building.loss(self.recipe, source)

    def draw_batch(
        self, path: pathlib.Path, images: ArrayLike, labels: ArrayLike
    ) -> None:
        images, labels = np.asarray(images), np.asarray(labels)
        draw_batch(path, images, labels, self.source.class_names)

    def save(self, directory: RunDirectory) -> None:
        """Writes the model, its class names, and a picture of its predictions."""
        self.write_model(directory)
        images, labels = self.photos_to_draw()
        # Call both the same way: compiled, bfloat16 rounds elsewhere, by more than 1%.
        trained, loaded = (
            self.answers.values(
                keras.ops.convert_to_numpy(net(images, training=False)).astype(float)
            )
            for net in (self.model, load_model(directory.model))
        )
        if not np.allclose(loaded, trained, atol=1e-3 * max(np.abs(trained).max(), 1)):
            raise RunError(
                f"The saved model {directory.model} does not compute what the trained "
                "one does: please report this."
            )
        self.draw_predictions(directory, images, labels, loaded)

    def write_model(self, directory: RunDirectory) -> None:
        """Writes the model and its class names."""
        with whole_file(directory.model) as temporary:
            self.model.save(temporary)
        names = "\n".join(self.source.class_names)
        write_text(directory.class_names, f"{names}\n")

    def photos_to_draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns images and labels of a few photos of the test."""
        _, images, labels = pipeline.samples(
            self.source.test, PICTURES, image_size=self.model.input_shape[1:3]
        )
        return images, labels

    @property
    def answers(self) -> Answers:
        """What the outputs of the model answer."""
        return Answers(
            self.source.class_names, kind_of_task(self.recipe.task).problem_type
        )

    def draw_predictions(
        self,
        directory: RunDirectory,
        images: np.ndarray,
        labels: np.ndarray,
        values: np.ndarray,
    ) -> None:
        """Draws what the model answers to a few photos of the test.

        The values are probabilities or numbers (photos, outputs).
        """
        raise NotImplementedError

    def training_results(self, directory: RunDirectory) -> dict:
        trained = count_parameters(self.model.trainable_weights, lora=True)
        return super().training_results(directory) | {"trained_parameters": trained}

    def log_of_training(self, directory: RunDirectory) -> MetricLog | None:
        """Returns the log of the training that made the model; None without one."""
        return MetricLog(directory.metrics)

    def run_results(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        """Returns what a report has of the run besides its metrics of the test."""
        log = self.log_of_training(directory)
        tested = measured.get("test")
        return {
            **({} if tested is None else {"test_loss": tested["loss"]}),
            **self.training_results(directory),
            **{
                f"validation_{name}": value
                for name, value in measured.get("validation", {}).items()
                if isinstance(value, float)
            },
            **({} if log is None else speed(log)),
            "command": command,
        }
