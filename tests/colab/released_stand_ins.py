"""Random files in place of the released ones that the notebooks download."""

import csv
import pathlib
import urllib.parse

import numpy as np

import keras_vit
import zoo
from zoo.catalog import index_file

# What stands in the index beside `Row`'s own columns is not read.
COLUMNS = index_file.Row._fields
UPSTREAM = "{model}-i21k-300ep-lr_0.001-aug_{aug}-wd_{decay}-do_0.0-sd_0.0"
MODELS = {"Ti_16": "Ti/16", "B_16": "B/16"}
# The last is the file that the catalogue recommends for Ti/16.
SETTINGS = (("medium2", 0.1), ("light1", 0.03), ("none", 0.1), ("none", 0.03))


def serve_into(folder):
    """Writes the files where a server of the folder is a mirror of the released ones.

    Args:
        folder: `pathlib.Path`.
    """
    rng = np.random.default_rng(0)
    for release, classes in (
        ("augreg-imagenet21k", 21843),
        ("augreg-imagenet21k+imagenet2012", 1000),
    ):
        card = zoo.find("ViT-Ti_16", release)
        model = keras_vit.ViT_Ti16(
            weights=None, classes=classes, image_size=card.image_size
        )
        head = model.get_layer("head")
        head.kernel.assign(rng.normal(size=head.kernel.shape, scale=0.1))
        keras_vit.save_released_weights(model, _place(folder, card.url))
    with open(_place(folder, index_file.INDEX_URL), "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(_rows())


def _place(folder, url):
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    place = pathlib.Path(folder, path.lstrip("/"))
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _rows():
    for model, name in MODELS.items():
        for number, (aug, decay) in enumerate(SETTINGS):
            upstream = UPSTREAM.format(model=model, aug=aug, decay=decay)
            for rate in (0.001, 0.003):
                validation = 0.8 + 0.02 * number + 10 * rate
                yield {
                    "name": name,
                    "ds": "i21k",
                    "epochs": 300,
                    "final_val": 0.4 + 0.01 * number,
                    "final_test": 0.4,
                    "adapt_ds": "cifar100",
                    "adapt_lr": rate,
                    "adapt_steps": 10_000,
                    "adapt_resolution": 224,
                    "adapt_final_val": validation,
                    "adapt_final_test": validation - 0.025 * number,
                    "filename": upstream,
                    "adapt_filename": f"{upstream}--cifar100-steps_10k-lr_{rate}-"
                    "res_224",
                }
