"""Evaluates a model on all images of a data set.

  keras-vit evaluate runs/photos                # the run's own test images
  keras-vit evaluate runs/photos new_photos/    # a whole folder, class/*.jpg
  keras-vit evaluate runs/photos photos/ --split=train
  keras-vit evaluate vit-b16/imagenet21k+imagenet2012-224 --dataset=imagenet2012

The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name. The data set is a folder whose sub-folders are the classes, flat or in
train/ and test/, a CSV file path,label, or whatever --dataset takes.

The model's classes and the data set's are matched by their names; a model of ImageNet's
classes takes WordNet ids (n01440764), names (tench) or numbers (0). If the data
set has only some of them, the report has the accuracy among all and among those.

The report (report.html, report.md, report.json) has the mistakes with their photos,
top-1 and top-5 accuracy with 95% confidence intervals, precision, recall and F1 of each
class, the calibration, the confusions, the loss and the images per second; mistakes.csv
has the answer to every image.
"""

from collections.abc import Sequence

from absl import app, flags

from train.common import command_line, predictors
from train.data import data_flags
from train.data.registry import PARTS, kind_of
from train.models.finding import find

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "scipy", "sklearn", "yaml")
data_flags.define_data(otherwise="that of the run if not given")
data_flags.define_corrections()
flags.DEFINE_enum(
    "split",
    None,
    ["all", *PARTS],
    "Which images of the data set. If not given, all of your own files that are named "
    "behind the model, otherwise test: of a folder without parts a fixed fifth.",
)
data_flags.define_image_size()
data_flags.define_batch_size(32, "Images at a time.")
predictors.define_flags()
flags.DEFINE_string(
    "real_labels",
    None,
    "ImageNet's reassessed labels, real.json of google-research/reassessed-imagenet, "
    "for accuracy by them too.",
)
flags.DEFINE_string(
    "out_dir",
    None,
    "Directory of the report; runs/evaluations/MODEL-DATASET-SPLIT if not given.",
)


def main(argv: Sequence[str]) -> None:
    """Evaluates the model that the command line names, and prints the accuracy."""
    if len(argv) < 2:
        raise app.UsageError(
            "Give one model, and perhaps one data set: "
            f"{command_line.typed('evaluate')} MODEL [FOLDER]"
        )
    data_flags.take_word(argv[2:])
    settings = command_line.values(
        "dataset split image_size central_crop batch_size engine precision out_dir"
    )
    if argv[2:] and settings["split"] is None and kind_of(argv[2]).is_own:
        settings["split"] = "all"
    command_line.need_packages("evaluate", PACKAGES)
    command_line.need_tensorflow("The input")
    with command_line.exit_on_errors("no report was written"):
        model = find(argv[1])
        data_flags.check(any_task=True)
        from train.evaluate import evaluation

        results = evaluation.evaluate(
            model,
            real_labels_file=flags.FLAGS.real_labels,
            data_options=data_flags.options(),
            command=command_line.as_typed("evaluate"),
            **settings,
        )
    for line in _lines(results, settings["split"] or "test"):
        print(line)
    command_line.say_next(
        ("predict", argv[1], "photo.jpg"),
        ("export", argv[1], "--format=tflite", "--out=exported"),
        ("explain", argv[1], "photo.jpg", "--out=explanation"),
    )


def _lines(results, split):
    """Yields what is printed of the results."""
    from train.reports import terminal

    if "leading_accuracy" not in results:
        yield terminal.of_sentences(results)
        return
    yield from results["notes"][1:]
    yield from terminal.accuracies(results, split, "accuracy", results["images"])
    yield from terminal.verdict(results)
    yield f"report {results['page']}"


if __name__ == "__main__":
    command_line.run(main)
