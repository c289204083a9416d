r"""Exports a model to other runtimes, and compares each export with it.

  keras-vit export runs/digits --format=saved_model,onnx --out=exported
  keras-vit export --model=vit-ti16/augreg-imagenet21k+imagenet2012 \
      --format=all --dataset=photos/ --out=exported   # {train,test}/class/*.jpg

The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name. The formats:

FORMATS

Each is run in its own runtime beside the Keras model, on images of the data set or on
generated ones: largest error, agreement, accuracy, latency and memory are in OUT's
export.md and export.json. Formats that agree are written. A format that agrees too
little, or that the model cannot be written in, is left out and named, and the command
fails at its end.
"""

import os
import sys

from absl import app, flags

from train.common import command_line
from train.data import data_flags
from train.export.formats import ALL, FORMATS, OPTIONS, select
from train.models.finding import find

__doc__ = __doc__ and __doc__.replace(
    "FORMATS", "\n".join(f"  {row.name:16} {row.help}" for row in FORMATS.values())
)

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "scipy", "yaml")
flags.DEFINE_string("model", None, "The model, unless it is the only argument.")
flags.DEFINE_list(
    "format",
    None,
    f"Required: some of {', '.join(FORMATS)}, separated by commas; or {ALL}.",
)
flags.DEFINE_string(
    "out",
    None,
    "Required: the folder of the exports. An earlier export in it is replaced.",
)
data_flags.define_data(
    otherwise="that of the run if not given; without any, images are generated"
)
flags.DEFINE_enum(
    "split",
    "test",
    ["test", "validation", "train"],
    "Which images of the data set are compared.",
)
data_flags.define_image_size()
flags.DEFINE_bool("features", False, "Leave the head out: the output is its input.")
flags.DEFINE_integer(
    "images",
    None,
    "How many images are compared, evenly spread over the split; 500 if not given, or "
    "64 that are generated.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "calibration_images",
    128,
    "How many images of the training split calibrate int8, and estimate the effect of "
    "--min_agreement.",
    lower_bound=1,
)
flags.DEFINE_float(
    "min_agreement",
    None,
    "The share of images for which an export and the Keras model must predict the same "
    "class, or with --features, or without data set, the mean cosine similarity of "
    "their outputs. "
    + ", ".join(f"{row.name} {row.min_agreement}" for row in FORMATS.values())
    + " if not given, which the upper end of the share's 95% interval must reach. If "
    "given, the share itself must; and with a data set, quantized TFLite keeps as many "
    "matrices in float16 as this takes by an estimate, 0 none and 1 most, and is "
    "larger.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_bool(
    "dynamic_batch", False, "Let TFLite take any number of images, not one at a time."
)
flags.DEFINE_bool(
    "any_size",
    False,
    "Let SavedModel and ONNX take images of any size whose sides are multiples of the "
    "patch size; TFLite stays at one size.",
)
flags.DEFINE_bool("uint8", False, "Let tflite-int8 take and return uint8.")
flags.DEFINE_integer(
    "threads",
    None,
    "Threads of the runtimes; one per core if not given.",
    lower_bound=1,
    upper_bound=1024,
)


def main(argv: list[str]) -> None:
    """Reads the flags, exports, and prints the comparison."""
    values = flags.FLAGS.flag_values_dict()
    models = argv[1:] + [values["model"]] * (values["model"] is not None)
    usage = (
        f"Give one model and a folder: {command_line.typed('export')} MODEL "
        f"--format={','.join(values['format'] or ['tflite'])} --out=DIR"
    )
    if len(models) != 1:
        raise app.UsageError(usage)
    data_flags.take_word([])
    try:
        select(values["format"] or (), **{name: values[name] for name in OPTIONS})
    except ValueError as error:
        sys.exit(f"error: {error}")
    if not values["out"]:
        raise app.UsageError(f"--out is missing. {usage}")
    command_line.need_packages("export", PACKAGES)
    command_line.need_tensorflow("An export")
    with command_line.exit_on_errors("nothing was written"):
        model = find(models[0])
        data_flags.check(any_task=True)
    from train.export import report, run

    failure = None
    with command_line.exit_on_errors("nothing was written"):
        try:
            results = run.export(
                model,
                values["format"],
                values["out"],
                compared=values["images"],
                calibration=values["calibration_images"],
                data_options=data_flags.options(),
                command=command_line.as_typed("export"),
                **command_line.values(
                    "dataset split central_crop image_size features min_agreement "
                    "dynamic_batch uint8 any_size threads"
                ),
            )
        except run.ExportError as error:
            results, failure = error.results, f"error: {error}"
    print(report.table(results))
    if len(results["exports"]) > 1:
        print(f"report   {os.path.join(values['out'], run.PAGE)}")
    if failure:
        sys.exit(failure)
    first = FORMATS[results["exports"][1]["name"]].file
    command_line.say_next(("predict", os.path.join(values["out"], first), "photo.jpg"))


if __name__ == "__main__":
    command_line.run(main)
