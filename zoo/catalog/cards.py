"""The cards of the released files that have a handle.

`released.csv` has one row per file: names and sizes are those of the listing in the
released code's `vit_jax.ipynb` (2024), and for the recommended AugReg files those of
its README. `accuracies.csv` has one row per published accuracy, those of a file in the
order in which `ModelCard.accuracies` has them, the best evidence first.
"""

import csv
import pathlib
import urllib.parse
from typing import Any

from zoo.catalog.model_card import BUCKET, Accuracy, Citation, Inference, ModelCard
from zoo.network import VARIANTS
from zoo.network.head import CLASS_LISTS

# The outputs of the released heads, by data set.
CLASSES = {
    "cifar100": 100,
    **CLASS_LISTS,
    "kitti": 4,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
}


def file_url(folder: str, file: str) -> str:
    """Returns the URL of a file in a folder of the bucket."""
    return f"{BUCKET}/{urllib.parse.quote(f'{folder}/{file}')}"


def read_table(name: str) -> list[dict[str, Any]]:
    """Returns the rows of a table of this folder."""
    path = pathlib.Path(__file__).with_name(name)
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_accuracies(name: str, *key: str) -> dict[tuple[str, ...], list[Accuracy]]:
    """Returns the rows of a table of accuracies by the columns of a key."""
    accuracies: dict[tuple[str, ...], list[Accuracy]] = {}
    for row in read_table(name):
        place = tuple(row.pop(column) for column in key)
        size = int(row["image_size"]) if row["image_size"] else None
        accuracy = Accuracy(**row | {"value": float(row["value"]), "image_size": size})
        accuracies.setdefault(place, []).append(accuracy)
    return accuracies


def _card(row):
    variant, release = row["variant"], row["release"]
    folder, _, rest = release.partition("-")
    trained_on = rest if folder == "augreg" else folder
    is_sam = not trained_on.startswith("imagenet")
    data_sets = ("imagenet2012",) if is_sam else tuple(trained_on.split("+"))
    # Their heads are all zeros, and behind a pre_logits layer.
    is_original = release == "imagenet21k"
    width = VARIANTS[variant].hidden_size if is_original else None
    slug = variant.lower().replace("_", "").replace("+", "-")
    notes = (note.split(": ", 1) for note in row["inferred"].split(" | ") if note)
    return ModelCard(
        handle=f"{slug}/{release}",
        variant=variant,
        release=release,
        image_size=int(row["image_size"]),
        classes=CLASSES[data_sets[-1]],
        representation_size=width,
        usable_head=not is_original,
        url=file_url(folder, f"{row['file']}.npz"),
        training_data=data_sets,
        citation=CITATIONS[folder.partition("+")[0]],
        file_size=round(float(row["mib"]) * 2**20) if row["mib"] else None,
        accuracies=tuple(_ACCURACIES.get((variant, release), ())),
        notes=row["notes"],
        inferred=tuple(Inference(field, reason) for field, reason in notes),
    )


# By the folder in the bucket, up to its first plus sign.
CITATIONS = {
    row.pop("folder"): Citation(**row | {"year": int(row["year"])})
    for row in read_table("citations.csv")
}
_ACCURACIES = read_accuracies("accuracies.csv", "variant", "release")
CARDS = {card.handle: card for card in map(_card, read_table("released.csv"))}
RELEASED_VARIANTS = tuple(dict.fromkeys(card.variant for card in CARDS.values()))
# By the first part of an AugReg file's name.
AUGREG_VARIANTS = {
    card.file.removeprefix("augreg/").partition("-")[0]: card.variant
    for card in CARDS.values()
    if card.file.startswith("augreg/")
}
