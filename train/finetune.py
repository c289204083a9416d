"""Fine-tunes a Vision Transformer on a data set.

  keras-vit finetune photos/   # class/*.jpg or {train,test}/class/*.jpg
  keras-vit finetune photos/ --minutes=5
  keras-vit finetune photos/ --image_size=128 --epochs=10
  keras-vit finetune --dataset=cifar100

For your own data it finds the best classifier in so many minutes, by probes on features
and training. With a flag of one training, such as --steps, --epochs or --learning_rate,
and for data sets with a recipe it trains once: every flag that is not given has the
value of the recipe in train/recipes, the paper's for CIFAR-10, CIFAR-100, Oxford Pets
and Flowers and ImageNet, VTAB-1k's for vtab/TASK, a small one for all others. A run
that was killed goes on when the same command is given again.

The run directory gets the model (model.keras), the report with the mistakes and the
learning curve (report.html, report.md, report.json, mistakes.csv, label_errors.csv),
metrics.jsonl and TensorBoard logs: tensorboard --logdir=runs
"""

import functools
import os
import time
from collections.abc import Sequence

from absl import flags

from train.common import command_line, process_age
from train.recipes import Recipe
from train.run import recipe_flags
from train.search import flags as search_flags
from train.series import flags as series_flags

# With --minutes another recipe is taken than without.
RECIPES = "train.search.flags"
recipe_flags.define("the files in train/recipes", "that of the data set")
search_flags.define()
series_flags.define()


def main(argv: Sequence[str], started: float | None = None) -> None:
    """Trains as the flags say, and prints where the report is.

    `started` is what `time.monotonic` said when the command began, by default now.
    """
    # The recipe says which task it is.
    packages, task = recipe_flags.CLASSIFIER_PACKAGES, None
    started = time.monotonic() if started is None else started
    recipe_flags.perform(
        argv,
        "finetune",
        RECIPES,
        packages,
        task,
        next_steps,
        instead=functools.partial(
            several if flags.FLAGS.seeds else search, started=started
        ),
        check_recipe=check,
        kind="seeds" if flags.FLAGS.seeds else "",
    )


def check(recipe: Recipe) -> None:
    """Raises a `RunError` for flags that do not go together.

    Models that do not exist are refused by a `ValueError`.
    """
    options = search_flags.options_of(recipe)
    for model in () if options is None else options.models:
        recipe.override(model=model).check()
    if flags.FLAGS.seeds:
        series_flags.check()
        if options is not None:
            options.shared_by(flags.FLAGS.seeds)


def search(recipe: Recipe, keywords: dict, started: float) -> tuple[dict, str] | None:
    """Returns the results of a search and their summary, None for one training.

    `started` is what the clock said when the command began.
    """
    options = search_flags.options_of(recipe)
    if options is None:
        return None
    from train.search import searching
    from train.search.task import Found

    results = searching.run(recipe, options, started=started, **keywords)
    return results, Found.summary(results)


def several(recipe: Recipe, keywords: dict, started: float) -> tuple[dict, str]:
    """Returns the results of runs with several seeds, and their summary.

    `started` is what the clock said when the command began.
    """
    options, seeds = search_flags.options_of(recipe), flags.FLAGS.seeds
    from train.series import page
    from train.series import seeds as of_seeds

    if options is None:
        results = of_seeds.run(recipe, seeds, **keywords)
    else:
        from train.search import seeds as searches

        results = searches.run(recipe, seeds, options, started=started, **keywords)
    return results, page.summary(results)


def next_steps(recipe: Recipe, results: dict) -> list[tuple]:
    """Returns what to do with the model, each a command and its words."""
    run = os.path.dirname(results["model"])
    return [
        ("predict", run, "photo.jpg"),
        ("export", run, "--format=tflite", "--out=exported"),
        ("explain", run, "photo.jpg", "--out=explanation"),
    ]


def command() -> None:
    """Runs the command line; its minutes began with the process."""
    started = time.monotonic() - process_age.seconds()
    command_line.run(
        functools.partial(main, started=started), recipe_flags.describe(RECIPES)
    )


if __name__ == "__main__":
    command()
