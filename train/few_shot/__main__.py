"""Evaluates a model's features: a linear probe on few images per class.

  keras-vit few_shot vit-b16/imagenet21k photos/
  keras-vit few_shot vit-b16/imagenet21k --dataset=cifar100
  keras-vit few_shot runs/digits --dataset=digits --shots=1,5

The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name. Its head is left out. The classifier is that of the papers: ridge
regression in closed form, in seconds once the features are there. --probe takes
another kind.
"""

import sys
from collections.abc import Sequence

from absl import app, flags

from train.common import command_line, predictors
from train.common.flag_names import is_count
from train.data import data_flags
from train.data.registry import kind_of
from train.models.finding import find
from train.models.run_directory import RunDirectory
from train.recipes.recipe import brings_weights
from train.scoring.probe_kinds import KINDS
from zoo.common.safe_text import printable

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "scipy", "sklearn", "yaml")
data_flags.define_data()
data_flags.define_corrections()
flags.DEFINE_list("shots", ["1", "5", "10", "25"], "Training images per class.")
flags.DEFINE_integer("seeds", 3, "Random draws of the training images.", lower_bound=1)
data_flags.define_image_size(crops=False)
data_flags.define_batch_size(32, "Images at a time.")
predictors.define_flags()
flags.DEFINE_enum(
    "probe",
    "ridge",
    list(KINDS),
    "The classifier on the features: ridge regression as in the papers, logistic "
    "regression, linear discriminant analysis, or a perceptron.",
)
flags.DEFINE_string(
    "cache",
    None,
    "Folder that keeps features: another probe of the same photos then takes seconds. "
    "None are kept if not given.",
)
flags.DEFINE_string(
    "out_dir",
    None,
    "Directory of the report; runs/evaluations/MODEL-DATASET-few-shot if not given.",
)


def main(argv: Sequence[str]) -> None:
    """Fits the probe that the command line describes, and prints its accuracies."""
    data_flags.take_word(argv[2:])
    if len(argv) < 2 or not flags.FLAGS.dataset:
        missing = "The data set is missing. " if argv[1:] else ""
        raise app.UsageError(
            f"{missing}Give one model and one data set: "
            f"{command_line.typed('few_shot')} MODEL photos/ (or --dataset=NAME)"
        )
    command_line.need_packages("few_shot", PACKAGES)
    command_line.need_tensorflow("The input")
    shots = flags.FLAGS.shots
    if not shots or not all(map(is_count, shots)):
        sys.exit(
            f"error: --shots={printable(','.join(shots), 80)} are not numbers of "
            "images: pass some from 1 up, such as 1,5,10."
        )
    with command_line.exit_on_errors("no report was written"):
        model = find(argv[1])
        data_flags.check()
        from train.scoring import linear_probe

        results = linear_probe.run(
            model,
            shots=sorted({int(count) for count in shots}),
            data_options=data_flags.options(),
            command=command_line.as_typed("few_shot"),
            judge=sentences,
            **command_line.values(
                "dataset seeds image_size batch_size engine precision probe cache "
                "out_dir"
            ),
        )
    print(linear_probe.table(results))
    if results["verdict"]:
        print("of the first draw with the most images:")
    for sentence in results["verdict"]:
        print(printable(sentence))
    print(f"report {results['report']}")
    of_data = data_flags.of_command(command_line.as_typed("few_shot"))
    command_line.say_next(*next_steps(argv[1], flags.FLAGS.dataset, of_data))


def sentences(summary: dict, curve: Sequence) -> Sequence[str]:
    """Returns the verdict on a probe, for `train.scoring.linear_probe.run`."""
    from train.reports import facts, verdict

    return verdict.judge(facts.Facts(summary=summary, curve=curve)).sentences


def next_steps(model: str, dataset: str, of_data: Sequence[str] = ()) -> list[tuple]:
    """Returns commands that go on with the model that was measured.

    `of_data` are the flags by which the data were read.
    """
    # finetune takes weights, which publish makes of a run.
    if RunDirectory(model).model.exists():
        return [("publish", model, "--to=registry")]
    if model.endswith(".keras"):
        return []
    words = [f"--model={model}"] if brings_weights(model) else []
    if not kind_of(dataset).is_own:
        # The recipe of a paper may take hours.
        words.append("--minutes=10")
    return [("finetune", f"--dataset={dataset}", *words, *of_data)]


if __name__ == "__main__":
    command_line.run(main)
