"""A small made index of the AugReg files, and a server that has it."""

import csv
import pathlib
from typing import NamedTuple

import pytest
from serving import serving_files, use_mirror

COLUMNS = (
    *("name", "ds", "epochs", "lr", "aug", "wd", "do", "sd", "best_val", "final_val"),
    *("final_test", "adapt_ds", "adapt_lr", "adapt_steps", "adapt_resolution"),
    *("adapt_final_val", "adapt_final_test", "params", "infer_samples_per_sec"),
    *("filename", "adapt_filename"),
)
R26 = "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
R26_OTHER = "R26_S_32-i21k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1"
B16 = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
B16_I1K = "B_16-i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0"
B16_30 = "B_16-i21k_30-30ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
# pre-trained file, model, pre-training, epochs, final_val, final_test; all made up but
# that the first is the best of its model, which the paper says.
PRETRAINED = {
    R26: ("R26+S/32", "i21k", 300, 0.46, 0.45),
    R26_OTHER: ("R26+S/32", "i21k", 300, 0.45, 0.46),
    B16: ("B/16", "i21k", 300, 0.48, 0.47),
    B16_I1K: ("B/16", "i1k", 300, 0.88, 0.79),
    B16_30: ("B/16", "i21k_30", 30, 0.49, 0.48),
}
# pre-trained file, data set, learning rate, steps, size, validation, test accuracy.
# Those of R26 on Pets are the real ones, in their order, from `vit_jax_augreg.ipynb`.
FINE_TUNED = (
    (R26, "oxford_iiit_pet", 0.03, 2500, 224, 0.894022, 0.867539),
    (R26, "oxford_iiit_pet", 0.01, 2500, 224, 0.934783, 0.908694),
    (R26, "oxford_iiit_pet", 0.003, 2500, 224, 0.945652, 0.926410),
    (R26, "oxford_iiit_pet", 0.001, 2500, 224, 0.959239, 0.931044),
    (R26, "oxford_iiit_pet", 0.03, 500, 224, 0.932065, 0.916326),
    (R26, "oxford_iiit_pet", 0.01, 500, 224, 0.951087, 0.928046),
    (R26, "oxford_iiit_pet", 0.003, 500, 224, 0.967391, 0.931589),
    (R26, "oxford_iiit_pet", 0.001, 500, 224, 0.959239, 0.923412),
    (R26, "oxford_iiit_pet", 0.03, 2500, 384, 0.915761, 0.894794),
    (R26, "oxford_iiit_pet", 0.01, 2500, 384, 0.945652, 0.934315),
    (R26, "oxford_iiit_pet", 0.003, 2500, 384, 0.961957, 0.941401),
    (R26, "oxford_iiit_pet", 0.001, 2500, 384, 0.961957, 0.944672),
    (R26, "oxford_iiit_pet", 0.03, 500, 384, 0.953804, 0.941128),
    (R26, "oxford_iiit_pet", 0.01, 500, 384, 0.961957, 0.946852),
    (R26, "oxford_iiit_pet", 0.003, 500, 384, 0.967391, 0.941946),
    (R26, "oxford_iiit_pet", 0.001, 500, 384, 0.964674, 0.930499),
    (R26_OTHER, "oxford_iiit_pet", 0.001, 500, 384, 0.99, 0.99),
    (R26, "kitti", 0.01, 500, 224, 0.8, 0.79),
    (R26, "resisc45", 0.01, 2500, 224, 0.97, 0.96),
    (B16, "cifar100", 0.01, 10000, 384, 0.93, 0.94),
    (B16, "cifar100", 0.003, 10000, 384, 0.94, 0.93),
    (B16, "cifar100", 0.001, 10000, 384, "", ""),
    (B16, "imagenet2012", 0.03, 20000, 384, 0.99, 0.85486),
    (B16, "imagenet2012", 0.01, 20000, 224, 0.98, 0.84),
    (B16_I1K, "cifar100", 0.003, 2500, 224, 0.9, 0.89),
    (B16_30, "cifar100", 0.003, 2500, 224, 0.91, 0.9),
)


def tuned_name(filename, data_set, rate, steps, image_size):
    """Spells a fine-tuned file's name."""
    recipe = f"steps_{steps // 1000}k-lr_{rate}-res_{image_size}"
    return f"{filename}--{data_set}-{recipe}"


def rows():
    """Returns the made index, a dict a row."""
    table = []
    for filename, *recipe, validation, test in FINE_TUNED:
        name, ds, epochs, final_val, final_test = PRETRAINED[filename]
        data_set, rate, steps, image_size = recipe
        row = dict.fromkeys(COLUMNS, "0")
        row.update(
            name=name,
            ds=ds,
            epochs=epochs,
            final_val=final_val,
            final_test=final_test,
            adapt_ds=data_set,
            adapt_lr=rate,
            adapt_steps=steps,
            adapt_resolution=image_size,
            adapt_final_val=validation,
            adapt_final_test=test,
            filename=filename,
            adapt_filename=tuned_name(filename, *recipe),
        )
        table.append(row)
    return table


def write(path, table, columns=COLUMNS):
    """Writes an index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)


class Bucket(NamedTuple):
    """A server of released files: its folder, and the paths it was asked for."""

    folder: pathlib.Path
    requests: list


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A made bucket of released files, with the index in it, and an empty cache."""
    folder = tmp_path / "server" / "vit_models"
    write(folder / "augreg" / "index.csv", rows())
    with serving_files(folder.parent) as server:
        use_mirror(monkeypatch, server.url, tmp_path / "cache")
        yield Bucket(folder, server.requests)
