"""Trains the runs of a study, and reports them in a table and a plot.

  keras-vit study --study=learning_rates --dataset=cifar100
  keras-vit study --study=examples --dataset=photos/ --models=ViT-Ti_16,ViT-S_16
  keras-vit study --study=compute --dataset=digits --step_counts=250,1000
  keras-vit study --study=positions --dataset=digits --seeds=3
  keras-vit study --study=vtab --dataset=vtab --model=ViT-B_16

learning_rates tries the recipe's rates, chooses by images of train that are held out,
and tests the choice with several seeds. examples (the paper's figure 4), compute
(figure 5) and positions (table D.4) train from scratch. vtab is the 19 tasks of
VTAB-1k. All flags of finetune hold for each run; --smoke shows in a minute or
two that all works.

Each run has a folder of its own in --run_dir, which gets study.md, study.png and
study.json. A study that was killed goes on when the same command is given again.
"""

import dataclasses
import functools
from collections.abc import Sequence

from absl import flags

from train.common import command_line
from train.common.errors import RunError
from train.run import recipe_flags, settings
from train.study import kinds
from train.study.options import Options

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = (*recipe_flags.CLASSIFIER_PACKAGES, "yaml")
recipe_flags.define(
    "the files in train/recipes and train/recipes/pretraining", "that of the data set"
)
flags.DEFINE_enum(
    "study", None, kinds.names(), "What the runs differ in.", required=True
)
flags.DEFINE_list(
    "learning_rates",
    None,
    "With --study=learning_rates: those to try; the recipe's if not given.",
)
recipe_flags.define_settings(dataclasses.fields(Options), has_defaults=True)


def main(argv: Sequence[str]) -> None:
    """Makes the runs of the study that the command line describes."""
    recipe_flags.check(argv, "study", PACKAGES)
    values = flags.FLAGS
    with command_line.exit_on_errors(recipe_flags.INTERRUPTED):
        if values.find_learning_rate:
            raise RunError(
                "--find_learning_rate is of single runs, such as keras-vit finetune: "
                "leave it out, or compare rates with --study=learning_rates."
            )
        recipe_flags.refuse(
            "extend", "it is of single runs, such as keras-vit finetune"
        )
        names = (field.name for field in dataclasses.fields(Options))
        try:
            options = Options(**command_line.values(" ".join(names)))
        except ValueError as error:
            raise RunError(str(error)) from error
        recipe, keywords = recipe_flags.read(
            "study",
            functools.partial(kinds.recipe_for, values.study),
            values.study,
            is_dataset=values.study not in kinds.OF_DATASETS,
            check=functools.partial(kinds.check, values.study, options=options),
        )
        from train.study import studies

        results = studies.run(values.study, recipe, options, **keywords)
        tables = kinds.named(values.study).tables(results)
        print("\n\n".join([*tables, f"page {results['page']}"]))


def command() -> None:
    """Runs the command line."""
    command_line.run(main, _describe)


def _describe(words):
    study = flags.FLAGS["study"].value
    settings.add_to_help(words, functools.partial(kinds.recipe_for, study))


if __name__ == "__main__":
    command()
