r"""Exports a model to other runtimes, and proves each export equal to it.

  keras-vit export runs/digits --format=saved_model,onnx --out=exported
  keras-vit export --model=vit-ti16/augreg-imagenet21k+imagenet2012-224 \
      --format=all --dataset=photos/ --out=exported   # {train,test}/class/*.jpg

The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name.

  saved_model      TensorFlow, TensorFlow Hub and Serving
  tflite           LiteRT in float32
  tflite-float16   with weights in float16
  tflite-dynamic   with all matrices in int8, and products of int8: a quarter of the
                   size, fast on a CPU
  tflite-int8      for accelerators: fixed scales, but where they would be wrong;
                   --dataset's training images calibrate it
  onnx             ONNX in float32
  onnx-float16     in float16

Each is run in its own runtime beside the Keras model, on images of the data set or on
generated ones: largest error, agreement, accuracy, latency and memory are in OUT's
export.md and export.json. What agrees is written. What agrees too little, or cannot be
made of the model, is left out and named, and the command fails at its end.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import app, flags  # noqa: E402

from train.common import command_line  # noqa: E402
from train.data import data_flags  # noqa: E402
from train.export.formats import ALL, FORMATS, chosen  # noqa: E402

flags.DEFINE_string("model", None, "The model, unless it is the only argument.")
flags.DEFINE_list(
    "format",
    None,
    f"Needed: some of {', '.join(FORMATS)}, separated by commas; or {ALL}.",
)
flags.DEFINE_string(
    "out",
    None,
    "Needed: the folder of the exports. Those of an earlier export that is there are "
    "replaced, all of them.",
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
flags.DEFINE_bool("features", False, "Leave the head out: what goes into it comes out.")
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
    "How many images of the training split calibrate int8, and tell what "
    "--min_agreement takes.",
    lower_bound=1,
)
flags.DEFINE_float(
    "min_agreement",
    None,
    "The share of images of whose class an export and the Keras model must agree, or "
    "with --features, or without data set, the mean cosine of what they answer. "
    + ", ".join(f"{name} {FORMATS[name].min_agreement}" for name in FORMATS)
    + " if not given, which the upper end of the share's 95% interval must reach. If "
    "given, the share itself must; and with a data set, quantised TFLite keeps as many "
    "matrices in float16 as this takes by an estimate, 0 none and 1 most, and is "
    "larger.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_bool(
    "dynamic_batch", False, "Let TFLite take any number of images, not one at a time."
)
flags.DEFINE_bool("uint8", False, "Let tflite-int8 take and give uint8.")
flags.DEFINE_integer(
    "threads",
    None,
    "How many threads the runtimes compute with; all cores if not given.",
    lower_bound=1,
)


def main(argv):
    """Reads the flags, exports, and says how each export did."""
    given = flags.FLAGS.flag_values_dict()
    models = argv[1:] + [given["model"]] * (given["model"] is not None)
    if len(models) != 1 or not given["out"]:
        raise app.UsageError(
            f"Give one model and a folder: {command_line.typed('export')} MODEL "
            "--format=tflite --out=DIR"
        )
    try:
        chosen(
            given["format"] or (),
            dynamic_batch=given["dynamic_batch"],
            uint8=given["uint8"],
        )
    except ValueError as error:
        sys.exit(f"error: {error}")
    command_line.need_packages("export")
    command_line.need_tensorflow("An export")
    command_line.quiet_data()
    from train.common.errors import RunError
    from train.export import exporting, page

    try:
        results = exporting.export(
            models[0],
            given["format"],
            given["out"],
            dataset=given["dataset"],
            data_dir=given["data_dir"],
            skip_corrupt=given["skip_corrupt"],
            split=given["split"],
            central_crop=given["central_crop"],
            image_size=given["image_size"],
            features=given["features"],
            compared=given["images"],
            calibration=given["calibration_images"],
            min_agreement=given["min_agreement"],
            dynamic_batch=given["dynamic_batch"],
            uint8=given["uint8"],
            threads=given["threads"],
            command=command_line.as_typed("export"),
        )
    except exporting.Refused as error:
        print(page.table(error.results))
        if len(error.results["exports"]) > 1:
            print(f"report   {os.path.join(given['out'], exporting.PAGE)}")
        sys.exit(f"error: {error}")
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("error: Interrupted; nothing was written.")
    print(page.table(results))
    print(f"report   {os.path.join(given['out'], exporting.PAGE)}")


def command():
    """Runs the command line."""
    command_line.run(main)


if __name__ == "__main__":
    command()
