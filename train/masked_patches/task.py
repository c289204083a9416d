"""The task of masked patch prediction, for `train.run.training.run`."""

import numpy as np
from keras import ops

import keras_vit
from train.data import pipeline
from train.data.sources.splits import Source
from train.engine.metric_log import MetricLog
from train.masked_patches import patches
from train.masked_patches.evaluation import by_chance, evaluate, training_frequencies
from train.masked_patches.recipes import MaskingRecipe
from train.masked_patches.report import write_picture, write_report
from train.models.run_directory import RunDirectory
from train.run.task import Task, speed


class MaskedPatches(Task):
    """Predicts the mean colours of masked patches, without labels.

    The run's directory gets `weights.npz` in the released naming, to be fine-tuned.

    Args:
        recipe: `train.masked_patches.recipes.MaskingRecipe`.

    Example:
        >>> from train.masked_patches import recipes
        >>> MaskedPatches(recipes.for_dataset("imagenet2012")).evaluated
        ('validation', 'test')
    """

    recipe: MaskingRecipe
    evaluated = ("validation", "test")
    loss = staticmethod(patches.colour_loss)
    accuracy = staticmethod(patches.colour_accuracy)
    evaluate = staticmethod(evaluate)

    def build(self, source: Source) -> None:
        self.source = source
        self.model, self.network, self.corruption = patches.build(self.recipe)
        self.finish = self.corruption.finish

    def announcement(self, directory: RunDirectory) -> str:
        count, total = self.corruption.count, self.corruption.patches
        return (
            f"{super().announcement(directory)}\n"
            f"corrupting {count} of {total} patches per image"
        )

    def save(self, directory: RunDirectory) -> None:
        """Writes the weights, and a picture of a few test images."""
        keras_vit.save_released_weights(self.network, directory.weights)
        _, inputs, colours = pipeline.samples(
            self.source.test,
            6,
            image_size=self.network.input_shape[1:3],
            finish=self.finish,
        )
        predicted = ops.argmax(self.model(inputs, training=False), axis=-1)
        write_picture(
            directory.predictions,
            inputs,
            ops.convert_to_numpy(predicted),
            colours,
            self.corruption.grid_size,
        )

    def report(
        self, directory: RunDirectory, measured: dict[str, dict], command: str
    ) -> dict:
        recipe, corruption = self.recipe, self.corruption
        image_size = self.network.input_shape[1:3]
        frequencies = training_frequencies(
            self.source.train,
            corruption,
            image_size=image_size,
            batch_size=recipe.batch_size,
            **self.batch_settings,
        )
        log = MetricLog(directory.metrics)
        results = {}
        for name, values in measured.items():
            chance = by_chance(
                getattr(self.source, name),
                corruption,
                frequencies,
                image_size=image_size,
                batch_size=recipe.batch_size // self.micro_batches,
            )
            for key, value in (values | chance).items():
                results[f"{name}_{key}"] = value
        results |= {
            "uniform_loss": float(np.log(patches.COLOURS)),
            "uniform_accuracy": 1 / patches.COLOURS,
            **self.training_results(directory),
            "corrupted_patches": corruption.count,
            "patches": corruption.patches,
            **speed(log),
            "command": command,
        }
        write_report(
            directory,
            splits=list(measured),
            settings=self.written_settings(directory),
            results=results,
            history=log,
        )
        paths = {"report": str(directory.report), "weights": str(directory.weights)}
        return results | paths

    @staticmethod
    def summary(results: dict) -> str:
        return (
            f"test loss {results['test_loss']:.3f}, and by chance "
            f"{results['test_constant_loss']:.3f}; accuracy "
            f"{results['test_accuracy']:.2%}, and by chance "
            f"{results['test_constant_accuracy']:.2%}\n"
            f"report  {results['report']}\n"
            f"weights {results['weights']}"
        )
