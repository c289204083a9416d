"""Fine-tunes a Vision Transformer on a data set.

  keras-vit finetune --dataset=digits
  keras-vit finetune --dataset=cifar100
  keras-vit finetune photos/   # class/*.jpg or {train,test}/class/*.jpg

Every flag that is not given has the value of the data set's recipe in train/recipes:
the paper's for CIFAR-10, CIFAR-100, Oxford Pets and Flowers and ImageNet, VTAB-1k's for
vtab/TASK, a small one for any other TFDS name and for your own folder. A run that was
killed goes on from its last checkpoint when the same command is given again.

The run directory gets the model (model.keras), the report with the mistakes and the
learning curve (report.html, report.md, report.json, mistakes.csv, label_errors.csv),
metrics.jsonl and TensorBoard logs: tensorboard --logdir=runs
"""

import os
from collections.abc import Sequence

from train.common import command_line
from train.recipes import Recipe
from train.run import recipe_flags

RECIPES = "train.recipes"
recipe_flags.define("the files in train/recipes", "that of the data set")


def main(argv: Sequence[str]) -> None:
    """Trains as the flags say, and prints where the report is."""
    packages = recipe_flags.CLASSIFIER_PACKAGES
    task = "train.run.classification:FineTuning"
    recipe_flags.perform(argv, "finetune", RECIPES, packages, task, next_steps)


def next_steps(recipe: Recipe, results: dict) -> list[tuple]:
    """Returns what to do with the model, each a command and its words."""
    run = os.path.dirname(results["model"])
    return [
        ("predict", run, "photo.jpg"),
        ("export", run, "--format=tflite", "--out=exported"),
        ("explain", run, "photo.jpg", "--out=explanation"),
    ]


def command() -> None:
    """Runs the command line."""
    command_line.run(main, recipe_flags.describe(RECIPES))


if __name__ == "__main__":
    command()
