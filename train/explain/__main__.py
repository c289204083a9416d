r"""Reports what a model attends to in photos, with the paper's figures.

  keras-vit explain --model=vit-b16/imagenet21k+imagenet2012-224 \
      --images photo.jpg holiday/ --out=explanation
  keras-vit explain --model=runs/digits --images digit.png --class=7 --out=seven

The model is the directory of a finished run, a .keras file, or whatever
keras_vit.load_model takes: a released or published model's name, a path, a URL,
hf://org/name. The photos are files and folders, all images in these and below.

OUT then holds report.html, one file to open, mail or print, which needs neither the
network nor the files beside it:

  predictions   the five most likely classes of each photo, with their names
  attention     rolled out over all layers, by layer, by head, and weighted by its
                gradient for a class
  features      the patches' features as colours
  the model     its filters, position embeddings and attention distance: figure 7

and each figure as figures/*.png and *.pdf, the numbers behind it as numbers/*.npz of
the same name, predictions.csv and report.json. Where a model lacks something, such as
attention, the report says why.
"""

import os

from absl import app, flags

from train.common import command_line
from train.data import data_flags

# Checked for before anything heavy is imported, by the names that Python has.
PACKAGES = ("tensorflow", "PIL", "jinja2", "matplotlib", "scipy", "yaml")
flags.DEFINE_string("model", None, "Needed: the model.")
flags.DEFINE_multi_string(
    "images",
    [],
    "Needed: an image (JPEG, PNG, GIF, BMP, WebP, or HEIC where pillow-heif is "
    "installed) or a folder of them; several follow one another, or repeat the flag.",
)
flags.DEFINE_string(
    "out",
    None,
    "Needed: the folder of the report. An earlier report in it is replaced.",
)
data_flags.define_image_size()
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


def main(argv):
    """Writes the report, and prints where it is."""
    given = flags.FLAGS.flag_values_dict()
    images = given["images"] + argv[1:]
    if not given["model"] or not images or not given["out"]:
        raise app.UsageError(
            f"Give a model, images and a folder: {command_line.typed('explain')} "
            "--model=MODEL --images photo.jpg folder/ --out=DIR"
        )
    command_line.need_packages("explain", PACKAGES)
    command_line.need_tensorflow("Reading images")
    command_line.quiet_data()
    from train.explain import report

    with command_line.exit_on_errors("nothing was written"):
        report.explain(
            given["model"],
            images,
            given["out"],
            class_name=given["class"],
            command=command_line.as_typed("explain"),
            **command_line.values("image_size central_crop shown"),
        )
    print(f"report {os.path.join(given['out'], report.PAGE)}")


if __name__ == "__main__":
    command_line.run(main)
