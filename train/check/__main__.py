"""Checks a data set: copies, leaks, label errors, unread photos.

  keras-vit check photos/                    # class/*.jpg or {train,test}/class/*.jpg
  keras-vit check photos.csv --json=check.json --out=checked
  keras-vit check photos/ --model=none       # without label errors, in seconds
  keras-vit finetune photos/ --without=check.json --relabel=check.json

Every photo is read and decoded once. Identical are files that are equal to the byte,
near-identical are photos that were resized, saved again, made brighter, mirrored or cut
by about a twentieth; contradictions are copies under several labels, leaks are copies
in several parts, such as train and test. Label errors are sought by cross-validation of
a small classifier on features of --model.

The page check.html shows the groups and the labels in doubt as pictures, check.json has
them all: look through it, remove what is right as it is, and pass it to --without and
--relabel of finetune, few_shot or evaluate.
"""

from collections.abc import Sequence

from absl import app, flags

from train.check.folder import folder_of
from train.common import command_line, predictors
from train.data import data_flags
from train.models.finding import FoundModel, find
from train.recipes.recipe import brings_weights

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "scipy", "sklearn", "yaml")
# The smallest of the zoo's models that were trained on many classes.
_MODEL = "vit-ti16/augreg-imagenet21k"
data_flags.define_data(skip_corrupt=False)
flags.DEFINE_string(
    "model",
    _MODEL,
    "Label errors are sought by the features of this model, one that few_shot takes; "
    "none seeks no label errors.",
)
flags.DEFINE_string(
    "json", None, "A further file of the findings, beside check.json in --out."
)
flags.DEFINE_string(
    "out",
    None,
    "Folder of the page and of check.json; runs/checks/NAME if not given, with the "
    "name of the folder or file, such as photos.csv. There the check of other data of "
    "that name is not replaced while these are where they were.",
)
data_flags.define_image_size(crops=False)
data_flags.define_batch_size(32, "Images at a time.")
predictors.define_flags()


def main(argv: Sequence[str]) -> None:
    """Checks the data set that the command line names, and prints what is notable."""
    data_flags.take_word(argv[1:])
    if not flags.FLAGS.dataset:
        raise app.UsageError(
            f"Give a data set: {command_line.typed('check')} photos/, or --dataset=NAME"
        )
    command_line.need_packages("check", PACKAGES)
    command_line.need_tensorflow("The input")
    command = command_line.as_typed("check")
    with command_line.exit_on_errors("no page was written"):
        name = flags.FLAGS.model
        model = None if name == "none" else find(name)
        data_flags.check(any_task=True)
        folder_of(flags.FLAGS.dataset, flags.FLAGS.out)
        from train.check import checking

        results = checking.check(
            model=model,
            data_options=data_flags.options(),
            command=command,
            **command_line.values(
                "dataset json out image_size batch_size engine precision"
            ),
        )
    print(
        *results["lines"],
        f"page {results['page']}",
        f"json {results['json']}",
        sep="\n",
    )
    if results["train"] is not None:
        words = [*data_flags.of_command(command), *_model_flags(model)]
        words += results["train"]
        command_line.say_next(("finetune", flags.FLAGS.dataset, *words))


def _model_flags(model: FoundModel | None) -> list[str]:
    """Returns the flag with which finetune begins from the model that was given.

    It takes weights, which runs and `.keras` files are not.
    """
    if model is None or not flags.FLAGS["model"].present:
        return []
    is_taken = model.keras_file is None and brings_weights(model.source)
    return [f"--model={model.source}"] if is_taken else []


if __name__ == "__main__":
    command_line.run(main)
