"""Trains a Vision Transformer without labels, by masked patch prediction.

  keras-vit masked_patches photos/
  keras-vit masked_patches --dataset=imagenet2012 --strategy=mirrored
  keras-vit masked_patches photos/ --recipe=paper --steps=100000
  keras-vit masked_patches --dataset=digits --smoke

The recipes are in train/masked_patches/recipes: the paper's (appendix B.1.2), the same
for ImageNet, and a small one for any other data. A run that was killed goes on from its
last checkpoint when the same command is given again.

The run directory gets the report, with what chance would reach, a picture of masked
and predicted patches, logs, and weights.npz in the released naming:
keras-vit finetune --weights=runs/NAME/weights.npz --model=MODEL
"""

from collections.abc import Sequence

from train.common import command_line
from train.masked_patches.recipes import MaskingRecipe
from train.run import recipe_flags

RECIPES = "train.masked_patches.recipes"
recipe_flags.define(
    "the files in train/masked_patches/recipes",
    "that for imagenet2012, a small one for other data",
    MaskingRecipe,
)


def main(argv: Sequence[str]) -> None:
    """Trains as the flags say, and prints where the weights are."""
    packages, task = recipe_flags.PACKAGES, "train.masked_patches.task:MaskedPatches"
    next_steps = recipe_flags.to_fine_tune
    recipe_flags.perform(argv, "masked_patches", RECIPES, packages, task, next_steps)


if __name__ == "__main__":
    command_line.run(main, recipe_flags.describe(RECIPES))
