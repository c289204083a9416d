"""A small made index of the AugReg files."""

import csv

# Columns that are read, and others.
READ = (
    *("name", "ds", "epochs", "final_val", "final_test"),
    *("adapt_ds", "adapt_lr", "adapt_steps", "adapt_resolution"),
    *("adapt_final_val", "adapt_final_test", "filename", "adapt_filename"),
)
COLUMNS = ("lr", "aug", "wd", "do", "sd", "best_val", "params", *READ)
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
# Rows of R26 on Pets are real ones, in their order, from `vit_jax_augreg.ipynb`.
FINE_TUNED = (
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


def rows():
    """Returns the made index, a dict a row."""
    table = []
    for filename, *recipe, validation, test in FINE_TUNED:
        data_set, rate, steps, size = recipe
        tuned = f"{filename}--{data_set}-steps_{steps // 1000}k-lr_{rate}-res_{size}"
        values = (*PRETRAINED[filename], *recipe, validation, test, filename, tuned)
        row = dict(zip(READ, values, strict=True))
        table.append(dict.fromkeys(COLUMNS, "0") | row)
    return table


def write(path, table):
    """Writes an index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(table)
