"""Trains a Vision Transformer without labels, by masked patch prediction.

  keras-vit masked_patches --dataset=photos/
  keras-vit masked_patches --dataset=imagenet2012 --strategy=mirrored
  keras-vit masked_patches --dataset=photos/ --recipe=paper --steps=100000
  keras-vit masked_patches --dataset=digits --smoke

The recipes are in train/recipes/masking: the paper's (appendix B.1.2), the same for
ImageNet, and a small one for any other data. A run that was killed goes on from its
last checkpoint when the same command is given again.

The run directory gets the report, with what chance would reach, a picture of what was
hidden and told, logs, and weights.npz in the released naming:
keras-vit finetune --weights=runs/NAME/weights.npz --model=MODEL
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import flags  # noqa: E402

from train.common import command_line
from train.run import recipe_flags  # noqa: E402

recipe_flags.define(
    "the files in train/recipes/masking",
    "that for imagenet2012, a small one for other data",
)
flags.DEFINE_float(
    "corrupted_fraction", None, "Of the patches of each image, above 0 and at most 1."
)


def main(argv):
    """Reads the flags, runs, and says where the weights are."""
    recipe_flags.perform(argv, "masked_patches", _choose, _run, _tell)


def _choose(given):
    from train.recipes import masking

    recipe = masking.for_dataset(given["dataset"], given["recipe"])
    if given["corrupted_fraction"] is None:
        return recipe
    return recipe.override(corrupted_fraction=given["corrupted_fraction"])


def _run(recipe, **settings):
    from train.masked_patches import training

    return training.run(recipe, **settings)


def _tell(results):
    print(
        f"test loss {results['test_loss']:.3f}, and by chance "
        f"{results['test_constant_loss']:.3f}; accuracy "
        f"{results['test_accuracy']:.2%}, and by chance "
        f"{results['test_constant_accuracy']:.2%}\n"
        f"report  {results['report']}\n"
        f"weights {results['weights']}"
    )


def command():
    """Runs the command line."""
    command_line.run(main)


if __name__ == "__main__":
    command()
