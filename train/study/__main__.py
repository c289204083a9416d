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

from absl import flags

from train.common import command_line
from train.common.errors import RunError
from train.run import help_text, recipe_flags
from train.study import kinds

# Checked for before anything heavy is imported, by the names that Python has.
PACKAGES = (*recipe_flags.CLASSIFIER_PACKAGES, "yaml")
recipe_flags.define(
    "the files in train/recipes and train/recipes/pretraining", "that of the data set"
)
flags.DEFINE_enum(
    "study", None, kinds.names(), "What the runs differ in.", required=True
)
flags.DEFINE_integer(
    "seeds",
    None,
    "Runs of each kind, with --seed and those after it; 3 of the chosen learning rate "
    "and else 1 if not given.",
    lower_bound=1,
)
flags.DEFINE_list(
    "learning_rates",
    None,
    "With --study=learning_rates: those to try; the recipe's if not given.",
)
flags.DEFINE_list(
    "models",
    [],
    "With --study=examples or compute: the models. If not given that of the recipe, "
    "with compute also at a half and at a quarter of its width.",
)
flags.DEFINE_list(
    "subsets",
    ["10%", "30%", "100%"],
    "With --study=examples: parts of the training images, percents or numbers.",
)
flags.DEFINE_list(
    "step_counts",
    [],
    "With --study=compute: the steps of the runs; the recipe's if not given.",
)
flags.DEFINE_list(
    "positions",
    ["none", "1d", "2d", "relative"],
    "With --study=positions: these, or 1d-every-layer, 1d-every-layer-shared, "
    "2d-every-layer, 2d-every-layer-shared.",
)
flags.DEFINE_list(
    "tasks",
    [],
    "With --study=vtab: its tasks, such as dtd; all 19 if not given, with --smoke one "
    "of each group.",
)
flags.DEFINE_integer(
    "shots",
    5,
    "With --study=examples, compute or positions: training images per class of the "
    "few-shot accuracy, 0 to leave it out.",
    lower_bound=0,
)
flags.DEFINE_string(
    "few_shot_dataset", None, "Whose few-shot accuracy; --dataset if not given."
)


def main(argv):
    """Makes the runs of the study that the command line describes."""
    recipe_flags.check(argv, "study", PACKAGES)
    given = flags.FLAGS
    with command_line.exit_on_errors(recipe_flags.INTERRUPTED):
        if given.find_learning_rate:
            raise RunError(
                "--find_learning_rate is of single runs, such as keras-vit finetune: "
                "leave it out, or compare rates with --study=learning_rates."
            )
        recipe_flags.refuse(
            "extend", "it is of single runs, such as keras-vit finetune"
        )
        recipe, settings = recipe_flags.read(
            "study",
            functools.partial(kinds.recipe_for, given.study),
            given.study,
            is_dataset=given.study not in kinds.OF_DATASETS,
            check=functools.partial(
                kinds.check,
                given.study,
                options=given,
                models=given.models,
                smoke=given.smoke,
            ),
        )
        from train.study import studies

        names = (field.name for field in dataclasses.fields(studies.Options))
        options = studies.Options(**command_line.values(" ".join(names)))
        results = studies.run(given.study, recipe, options, **settings)
        tables = kinds.named(given.study).tables(results)
        print("\n\n".join([*tables, f"page {results['page']}"]))


def command():
    """Runs the command line."""
    command_line.run(main, _describe)


def _describe(words):
    study = flags.FLAGS["study"].value
    help_text.add_values(words, functools.partial(kinds.recipe_for, study))


if __name__ == "__main__":
    command()
