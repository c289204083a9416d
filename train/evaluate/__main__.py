"""Evaluates a model on all images of a data set.

  keras-vit evaluate runs/digits
  keras-vit evaluate vit-b16/imagenet21k+imagenet2012-224 --dataset=imagenet2012
  keras-vit evaluate model.npz --dataset=photos/   # {train,test}/class/*.jpg

The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name. Its classes and the data set's are matched by their names; a model of
ImageNet's classes takes folders that are named after some of them, by WordNet id or
name.

The report (report.md, report.json) has top-1 and top-5 accuracy with 95% confidence
intervals, precision, recall and F1 of each class, the calibration, the confusions, the
loss and the images per second.
"""

from absl import app, flags

from train.common import command_line
from train.data import data_flags

# Checked for before anything heavy is imported, by the names that Python has.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "scipy", "sklearn", "yaml")
data_flags.define_data(otherwise="that of the run if not given")
flags.DEFINE_enum(
    "split", "test", ["test", "validation", "train"], "Which images of the data set."
)
data_flags.define_image_size()
flags.DEFINE_integer("batch_size", 32, "Images at a time.", lower_bound=1)
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


def main(argv):
    """Evaluates the model that the command line names, and prints the accuracy."""
    if len(argv) != 2:
        raise app.UsageError(f"Give one model: {command_line.typed('evaluate')} MODEL")
    command_line.need_packages("evaluate", PACKAGES)
    command_line.need_tensorflow("The input")
    command_line.quiet_data()
    from train.evaluate import evaluation

    split = flags.FLAGS.split
    with command_line.exit_on_errors("no report was written"):
        results = evaluation.evaluate(
            argv[1],
            real_labels_file=flags.FLAGS.real_labels,
            command=command_line.as_typed("evaluate"),
            **command_line.values(
                "dataset data_dir skip_corrupt split image_size central_crop "
                "batch_size out_dir"
            ),
        )
    accuracy, low, high = (
        f"{results[f'{split}_accuracy{end}']:.2%}" for end in ("", "_low", "_high")
    )
    print(
        f"{split} accuracy {accuracy} ({low} to {high}) on all "
        f"{results[f'{split}_examples']:,} images, report {results['report']}"
    )


if __name__ == "__main__":
    command_line.run(main)
