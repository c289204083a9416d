"""The task of masks, a class for every pixel, for `train.run.training.run`."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

import keras_vit
from keras_vit.structure import set_bits
from train.common.errors import RunError
from train.data import pipeline
from train.data.registry import IGNORED
from train.data.sources.splits import Source
from train.engine.choices import LOSSES
from train.engine.losses import counted_pixels
from train.engine.step import Devices, Trainer
from train.masks import report
from train.masks.metrics import MaskCounts
from train.masks.segmenting import Segmenter, classes_of_pixels
from train.masks.source import photos_and_masks
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.reports import terminal
from train.run import building
from train.run.supervised import Supervised
from train.run.trained_parts import layer_rates

EOMT = "eomt"


class Masks(Supervised):
    """Trains a model that says the class of every pixel of a photo.

    The head is linear on the patches of the backbone, or an EoMT's queries in its last
    blocks, see `keras_vit.segmenter`.

    Example:
        >>> from train import recipes
        >>> recipe = recipes.for_dataset("scenes/").override(task="masks")
        >>> Masks(recipe.override(loss="pixels", frozen=True)).evaluated
        ()
    """

    # Photos are tested in their own size, by `report`.
    evaluated = ()

    @property
    def about_labels(self) -> str:
        return f"masks of {len(self.source.class_names)} classes"

    def check_devices(self, devices: Devices) -> None:
        super().check_devices(devices)
        if devices.count > 1:
            raise RunError(
                "--task=masks is trained on one device, and this run has "
                f"{devices.count}: pass --strategy=one."
            )
        recipe = self.recipe
        is_eomt = recipe.mask_head == EOMT
        if is_eomt and recipe.frozen:
            raise RunError(
                "--frozen trains a linear head alone, and the blocks of an EoMT have "
                "to learn its queries: leave it out, or pass --mask_head=linear."
            )
        if is_eomt and not isinstance(recipe.micro_batches, int):
            raise RunError(
                "The attention of an EoMT is masked by the number of micro-batches so "
                "far, which --micro_batches=auto leaves open: pass a number."
            )
        if recipe.lora_rank:
            raise RunError(
                "--lora_rank is of classifiers, and --task=masks trains a head or all "
                "weights: leave it out."
            )
        if recipe.layer_decay < 1 and not is_eomt:
            raise RunError(
                f"--layer_decay={recipe.layer_decay:g} is of --mask_head=eomt: leave "
                "it out."
            )

    def check_data(self, source: Source) -> None:
        """Refuses what masks do not follow, and more classes than a PNG can have."""
        recipe = self.recipe
        moving = {
            "rand_augment": recipe.rand_augment,
            "mixup": recipe.mixup,
            "cutmix": recipe.cutmix,
            "random_erasing": recipe.random_erasing,
        }
        if given := [name for name, value in moving.items() if value]:
            raise RunError(
                f"--{given[0]} changes photos in a way that their masks do not follow: "
                "leave it out; --crop and --flip move both."
            )
        if len(source.class_names) > IGNORED:
            raise RunError(
                f"{source.name} has {len(source.class_names)} classes, and masks have "
                f"at most {IGNORED}: join some in its table of classes."
            )

    def build(self, source: Source) -> None:
        recipe = self.recipe
        self.source = source
        backbone = building.model(recipe, len(source.class_names))
        options: dict[str, Any] = {"frozen": recipe.frozen}
        if recipe.mask_head == EOMT:
            steps = recipe.steps * int(recipe.micro_batches)
            options = {"head": EOMT, "masked_steps": steps}
        self.model = self.network = keras_vit.segmenter(
            backbone, class_names=source.class_names, name="segmenter", **options
        )
        set_bits(self.model, recipe.bits)
        self.loss = self.make_loss(source)
        self.segmenter = Segmenter(self.model)
        if recipe.layer_decay < 1:
            known = {layer.name for layer in backbone.layers}
            # New layers, such as those of queries, have the whole rate.
            self.rate_scales = {
                path: scale if path.partition("/")[0] in known else 1.0
                for path, scale in layer_rates(self.model, recipe.layer_decay).items()
            }

    def make_loss(self, source: Source) -> Callable:
        if self.recipe.mask_head != EOMT:
            return LOSSES[self.recipe.loss].of(self.recipe)
        of_masks = keras_vit.MaskLoss()
        return lambda outputs, labels: ops.broadcast_to(
            of_masks(labels, outputs), ops.shape(labels)[:1]
        )

    def begin(self) -> None:
        """Begins with a new head of the segmenter."""

    @staticmethod
    def accuracy(outputs: Any, labels: keras.KerasTensor) -> Any:
        """Returns the share of the pixels that are right, of each photo."""
        answers = classes_of_pixels(outputs, labels.shape[1:3])
        is_right = ops.equal(answers, ops.cast(labels, answers.dtype))
        counted, count = counted_pixels(labels)
        return ops.sum(ops.cast(is_right, "float32") * counted, axis=(1, 2)) / count

    def evaluate(
        self, trainer: Trainer, batches: Iterable, on_batch: Callable | None = None
    ) -> dict:
        """Returns loss, share of pixels and mean IoU of photos at the model's size."""
        counts = MaskCounts(len(self.source.class_names))
        losses = []
        for images, labels in batches:
            outputs, labels = (
                self.segmenter.outputs(images),
                ops.convert_to_numpy(labels),
            )
            # JAX has batches of one size, which are filled up.
            is_photo = (labels != pipeline.NO_LABEL).any(axis=(1, 2))
            labels = np.where(labels == pipeline.NO_LABEL, 0, labels)
            own = ops.convert_to_numpy(self.loss(outputs, labels))
            losses.append(own[is_photo])
            maps = self.segmenter.maps(outputs, labels.shape[1:])
            for truth, answer in zip(labels[is_photo], maps[is_photo], strict=True):
                counts.add(truth, answer)
            if on_batch is not None:
                on_batch(sum(map(len, losses)))
        found = counts.metrics()
        return {
            "loss": float(np.concatenate(losses).mean()),
            "accuracy": found.pixel_accuracy.value,
            "mean_iou": found.mean_iou.value,
        }

    def draw_batch(
        self, path: pathlib.Path, images: ArrayLike, labels: ArrayLike
    ) -> None:
        report.draw_masks(path, np.asarray(images), {"mask": np.asarray(labels)})

    def conclude(self, measured: dict[str, dict]) -> None:
        """Leaves out of an EoMT what masks its attention in training."""
        if self.recipe.mask_head == EOMT:
            self.model = self.network = self.model.rebuild()
            set_bits(self.model, self.recipe.bits)
            self.segmenter = Segmenter(self.model)

    def save(self, directory: RunDirectory) -> None:
        """Writes the model, its class names, and a picture of its answers."""
        self.write_model(directory)
        images, labels = self.photos_to_draw()
        loaded = Segmenter(load_model(directory.model))
        size = labels.shape[1:]
        maps, again = (
            one.maps(one.outputs(images), size) for one in (self.segmenter, loaded)
        )
        if np.mean(maps != again) > 1e-3:
            raise RunError(
                f"The saved model {directory.model} does not answer as the trained one "
                "does: please report this."
            )
        # Test what is saved: averages of the weights are not the trained ones.
        self.segmenter = loaded
        drawn = {"mask": labels, "answer": again}
        report.draw_masks(directory.predictions, images, drawn)

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        source, log = self.source, self.log_of_training(directory)
        results = self.run_results(directory, measured, command)
        results |= log.validation(best=bool(self.recipe.early_stopping))
        written = report.write(
            directory.path,
            report.judged(
                photos_and_masks(source.test),
                source.test.num_examples,
                self.segmenter,
                source.class_names,
            ),
            settings=self.written_settings(directory),
            results=results,
            history=log,
        )
        return written | {"model": str(directory.model)}

    @staticmethod
    def summary(results: dict) -> str:
        return terminal.of_sentences(results)
