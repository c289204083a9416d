"""Trains a Vision Transformer from scratch, to be fine-tuned later.

  keras-vit pretrain photos/ --model=ViT-S_16
  keras-vit pretrain --dataset=imagenet2012 --strategy=mirrored
  keras-vit pretrain --dataset=imagenet2012 --recipe=augreg_imagenet2012_strong1
  keras-vit pretrain photos/ --recipe=imagenet21k --smoke

The recipes are in train/recipes/pretraining: the paper's for ImageNet and ImageNet-21k,
all settings of How to train your ViT?, and a small one for any other data. A run that
was killed goes on from its last checkpoint when the same command is given again.

The run directory gets what a fine-tuning run leaves, and weights.npz in the released
naming: keras-vit finetune --weights=runs/NAME/weights.npz --model=MODEL
"""

from collections.abc import Sequence

from train.common import command_line
from train.run import recipe_flags

RECIPES = "train.recipes.pretraining"
recipe_flags.define(
    "the files in train/recipes/pretraining",
    "the paper's for imagenet2012 and imagenet21k, a small one for other data",
)


def main(argv: Sequence[str]) -> None:
    """Trains as the flags say, and prints where the report is."""
    packages = recipe_flags.CLASSIFIER_PACKAGES
    task, next_steps = "train.run.classification:PreTraining", recipe_flags.to_fine_tune
    recipe_flags.perform(argv, "pretrain", RECIPES, packages, task, next_steps)


if __name__ == "__main__":
    command_line.run(main, recipe_flags.describe(RECIPES))
