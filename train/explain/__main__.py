r"""Reports what a model attends to in photos, with the paper's figures.

  keras-vit explain vit-b16/imagenet21k+imagenet2012-224 photo.jpg holiday/
  keras-vit explain runs/digits digit.png --class=7 --out=seven

The first word is the model, the others are photos. The answer for each photo is
printed. The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name. The photos are files and folders, all images in these and below.

OUT then holds report.html, one file to open, mail or print, which needs neither the
network nor the files beside it:

  the answer    each photo, its class, and the attention for that class
  predictions   the five most likely classes of each photo, with their names
  attention     rolled out over all layers, by layer and by head
  features      the patches' features as colours
  the model     its filters, position embeddings and attention distance: figure 7

and each figure as figures/*.png and *.pdf, the numbers behind it as numbers/*.npz of
the same name, predictions.csv and report.json. Where a model lacks something, such as
attention, the report says why.
"""

import os
from collections.abc import Sequence

from absl import app, flags

from train.common import command_line
from train.data import data_flags
from train.data.checking import check_paths
from train.models.finding import find
from zoo.common.safe_text import class_text, printable

# Packages to check for, by import name, before anything heavy is imported.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "yaml")
# Print at most this many answers; a file has all.
_PRINTED = 50
flags.DEFINE_string(
    "model", None, "The model; all words of the command line are photos then."
)
flags.DEFINE_multi_string(
    "images",
    [],
    "An image (JPEG, PNG, GIF, BMP, WebP, TIFF, AVIF, or HEIC where pillow-heif is "
    "installed) or a folder of them, besides those that follow the model; repeat the "
    "flag for several.",
)
flags.DEFINE_string(
    "out",
    "explanation",
    "The folder of the report.",
)
flags.DEFINE_bool("overwrite", False, "Replace an earlier report in --out.")
data_flags.define_image_size()
data_flags.define_bits()
flags.DEFINE_integer(
    "shown",
    12,
    "How many images get figures of their own, evenly spread. Predictions and "
    "attention distance are computed for all.",
    lower_bound=1,
)
flags.DEFINE_string(
    "class",
    None,
    "The class, by name or number, for the gradient-weighted attention; by default the "
    "most likely class of each image.",
)


def main(argv: Sequence[str]) -> None:
    """Writes the report, and prints the answers and where it is."""
    values = flags.FLAGS.flag_values_dict()
    model, *words = [*filter(None, [values["model"]]), *argv[1:]] or [""]
    images = values["images"] + words
    if not model or not images or not values["out"]:
        needed = {"model": model, "photos": images, "--out": values["out"]}
        missing = [name for name, value in needed.items() if not value]
        raise app.UsageError(
            f"Give a model and photos: {command_line.typed('explain')} MODEL photo.jpg "
            f"folder/ --out=DIR. Missing: {', '.join(missing)}"
        )
    command_line.need_packages("explain", PACKAGES)
    command_line.need_tensorflow("Reading images")
    with command_line.exit_on_errors("nothing was written"):
        check_paths(images)
        source = find(model)
        from train.explain import report

        results = report.explain(
            source,
            images,
            values["out"],
            class_name=values["class"],
            command=command_line.as_typed("explain"),
            **command_line.values("image_size central_crop bits shown overwrite"),
        )
    for photo in results["photos"][:_PRINTED]:
        if photo["predictions"]:
            _, name, probability = photo["predictions"][0]
            print(printable(f"{photo['name']}: {class_text(name)} {probability:.1%}"))
    if (more := len(results["photos"]) - _PRINTED) > 0:
        print(f"and {more:,} more photos in {report.PREDICTIONS}")
    print(f"report {os.path.join(values['out'], report.PAGE)}")


if __name__ == "__main__":
    command_line.run(main)
