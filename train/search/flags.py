"""The flags of a search, and when a command line is one."""

import dataclasses

from absl import flags

from train import recipes
from train.common import flag_help
from train.common.errors import RunError
from train.recipes import Recipe
from train.search.options import KEPT, OF_SEARCH, Options, begins_with
from train.tasks import CLASSES

# Flags belong to the command that defines them, in its --help too.
flags.disclaim_key_flags()

# A search decides these itself, or does not do them.
_NOT_WITH_MINUTES = (
    *("steps", "epochs", "warmup_steps", "frozen", "lora_rank", "early_stopping"),
    *("average_decay", "explained_images", "class_weights", "loss", "recipe"),
    *("config", "extend", "find_learning_rate"),
)
# Settings of a recipe that leave `finetune DATASET` a search; with the others it is the
# one training that they describe.
_OF_BOTH = {
    *("dataset", "model", "weights", "image_size", "train_examples", "bits", "seed"),
    *("validation_fraction", "batch_size", "crop", "flip", "precision"),
    *("image_column", "label_column", "split_column", "task"),
}


def define() -> None:
    """Defines `--minutes`, `--models` and `--single`."""
    flags.DEFINE_float(
        "minutes",
        None,
        "Find the best classifier in so many minutes, its test and report included: "
        "probes on features, then training of all weights as far as there is time, and "
        "their average unless held-out photos say otherwise. If not given, "
        "2 to 10 by the number of photos for data without a recipe of its own, where "
        "no other flag names a setting of one training, such as --steps.",
        lower_bound=0.1,
    )
    flags.DEFINE_list(
        "models",
        [],
        "With --minutes: further models that are tried on features, such as "
        "dinov2-s14/lvd142m; one that does not help is left out.",
    )
    flags.DEFINE_boolean(
        "single",
        False,
        "With --minutes: answer with one network, the best, not an average of several.",
    )
    for name in OF_SEARCH:
        flag_help.add_setting(name, "Search")


def for_dataset(dataset: str, name: str | None = None) -> Recipe:
    """Returns the recipe of a data set; with `--minutes` what a search begins with."""
    is_search = flags.FLAGS["minutes"].value is not None
    return (begins_with if is_search else recipes.for_dataset)(dataset, name)


def options_of(recipe: Recipe) -> Options | None:
    """Returns the options of the search that the flags ask for, None for a training.

    Raises a `RunError` that names a flag which does not go with another.
    """
    given = {name for name in flags.FLAGS if flags.FLAGS[name].present}
    minutes, models = flags.FLAGS.minutes, tuple(flags.FLAGS.models)
    if recipe.task not in (None, CLASSES):
        of_classes = ("minutes", "models", "single", "seeds")
        if names := [name for name in of_classes if name in given]:
            raise RunError(
                f"--{names[0]} is of one class per photo, and these are for "
                f"--task={recipe.task}: leave it out, and pass --epochs instead."
            )
        return None
    if minutes is not None:
        if names := [name for name in _NOT_WITH_MINUTES if name in given]:
            raise RunError(
                f"--{names[0]} is of one training, and --minutes={minutes:g} finds out "
                "what to train and how long: leave one of them out."
            )
    elif given & _of_training() or not _is_own(recipe.dataset):
        if names := [name for name in ("models", "single") if name in given]:
            raise RunError(
                f"--{names[0]} is of a search, and there is none here: pass --minutes."
            )
        return None
    kept = tuple(name for name in KEPT if name in given)
    return Options(minutes, models, flags.FLAGS.single, kept)


def _of_training():
    """Returns the names of the flags that describe one training."""
    fields = {field.name for field in dataclasses.fields(Recipe)}
    return fields - _OF_BOTH | {*_NOT_WITH_MINUTES, "smoke"}


def _is_own(dataset):
    """Returns whether a data set has no recipe of its own."""
    own = recipes.for_dataset(dataset, recipes.OWN_DATA)
    return recipes.for_dataset(dataset) == own
