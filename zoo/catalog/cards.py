"""The cards of the released files that have a handle: one table row per file.

Files and sizes are those of the listing in the released code's `vit_jax.ipynb` (2024),
the recommended AugReg files and their sizes those of its README.
"""

from __future__ import annotations

import urllib.parse

from zoo.catalog import accuracies
from zoo.catalog.model_card import (
    BUCKET,
    GAP_SUFFIX,
    Accuracy,
    Citation,
    Inference,
    ModelCard,
)
from zoo.network import ARCHITECTURES

# By the folder in the bucket, up to its first plus sign.
CITATIONS = {
    "imagenet21k": Citation(
        key="dosovitskiy2020vit",
        title="An Image is Worth 16x16 Words: Transformers for Image Recognition at "
        "Scale",
        authors="Dosovitskiy, Alexey and Beyer, Lucas and Kolesnikov, Alexander and "
        "Weissenborn, Dirk and Zhai, Xiaohua and Unterthiner, Thomas and Dehghani, "
        "Mostafa and Minderer, Matthias and Heigold, Georg and Gelly, Sylvain and "
        "Uszkoreit, Jakob and Houlsby, Neil",
        year=2021,
        arxiv="2010.11929",
    ),
    "augreg": Citation(
        key="steiner2021augreg",
        title="How to train your ViT? Data, Augmentation, and Regularization in Vision "
        "Transformers",
        authors="Steiner, Andreas and Kolesnikov, Alexander and Zhai, Xiaohua and "
        "Wightman, Ross and Uszkoreit, Jakob and Beyer, Lucas",
        year=2021,
        arxiv="2106.10270",
    ),
    "sam": Citation(
        key="chen2021outperform",
        title="When Vision Transformers Outperform ResNets without Pretraining or "
        "Strong Data Augmentations",
        authors="Chen, Xiangning and Hsieh, Cho-Jui and Gong, Boqing",
        year=2021,
        arxiv="2106.01548",
    ),
    "gsam": Citation(
        key="zhuang2022gsam",
        title="Surrogate Gap Minimization Improves Sharpness-Aware Training",
        authors="Zhuang, Juntang and Gong, Boqing and Yuan, Liangzhe and Cui, Yin and "
        "Adam, Hartwig and Dvornek, Nicha and Tatikonda, Sekhar and Duncan, James and "
        "Liu, Ting",
        year=2022,
        arxiv="2203.08065",
    ),
}

# variant, MiB
_IMAGENET21K = (
    ("ViT-B_8", 393.72),
    ("ViT-B_16", 393.69),
    ("ViT-B_32", 400.01),
    ("ViT-L_16", 1.22 * 1024),
    ("ViT-L_32", 1.23 * 1024),
    ("ViT-H_14", 2.46 * 1024),
    ("R26+ViT-B_32", 450.23),
    ("R50+ViT-B_16", 439.85),
    ("R50+ViT-L_32", 1.31 * 1024),
)
# variant, suffix of the release, image size, MiB
_IMAGENET2012 = (
    ("ViT-B_8", "", 384, 334.78),
    ("ViT-B_16", "", 384, 331.4),
    ("ViT-B_16", "-224", 224, 330.29),
    ("ViT-B_32", "", 384, 336.89),
    ("ViT-L_16", "", 384, 1.14 * 1024),
    ("ViT-L_16", "-224", 224, 1.13 * 1024),
    ("ViT-L_32", "", 384, 1.14 * 1024),
    ("R50+ViT-B_16", "", 384, 377.57),
)
_SIZE = "from the file's size"
_KIN = "from ViT-B_16's file; the size of this one is not known"
_OPTIMIZER = (
    "The file is three times the model: it also holds the optimizer's state (inferred "
    "from its size), which is skipped on reading."
)
# variant, MiB, how it is known that there is no pre_logits, notes
_SAM = (
    ("ViT-S_16", 252.57, _SIZE, _OPTIMIZER),
    ("ViT-B_16", 330.3, _SIZE, ""),
    ("ViT-B_32", 336.61, _SIZE, ""),
    ("ViT-L_16", None, _KIN, ""),
    ("ViT-L_32", None, _KIN, ""),
)
_GSAM = ("ViT-S_16", "ViT-S_32", "ViT-B_16", "ViT-B_32")
_UNSEEN = "from the other ImageNet releases; no listing of the folder was seen"
_GSAM_INFERRED = (
    Inference("url", "from the names of the released configurations; not seen"),
    Inference("image_size", _UNSEEN),
    Inference("classes", _UNSEEN),
    Inference("usable_head", _UNSEEN),
)
# variant, file, MiB; then rate, image size and ImageNet top-1 of its fine-tuned file
_AUGREG = (
    ("ViT-Ti_16", "Ti_16", "none-wd_0.03-do_0.0-sd_0.0", 37, 0.03, 384, 78.22),
    ("ViT-S_16", "S_16", "light1-wd_0.03-do_0.0-sd_0.0", 115, 0.03, 384, 83.73),
    ("ViT-S_32", "S_32", "none-wd_0.1-do_0.0-sd_0.0", 118, 0.01, 384, 79.58),
    ("ViT-B_8", "B_8", "medium2-wd_0.1-do_0.0-sd_0.0", None, 0.03, 224, 85.58),
    ("ViT-B_16", "B_16", "medium1-wd_0.1-do_0.0-sd_0.0", 391, 0.03, 384, 85.49),
    ("ViT-B_32", "B_32", "light1-wd_0.1-do_0.0-sd_0.0", 398, 0.01, 384, 83.59),
    ("ViT-L_16", "L_16", "strong1-wd_0.1-do_0.0-sd_0.0", 1243, 0.01, 384, 85.59),
    ("R+ViT-Ti_16", "R_Ti_16", "none-wd_0.03-do_0.0-sd_0.0", 40, 0.03, 384, 75.40),
    ("R26+ViT-S_32", "R26_S_32", "light1-wd_0.1-do_0.0-sd_0.0", 170, 0.01, 384, 83.85),
    (
        "R50+ViT-L_32",
        "R50_L_32",
        "medium1-wd_0.1-do_0.1-sd_0.1",
        1337,
        0.01,
        384,
        85.99,
    ),
)
# By the first part of an AugReg file's name.
AUGREG_VARIANTS = {name: variant for variant, name, *_ in _AUGREG}


def file_url(folder: str, file: str) -> str:
    """Returns the URL of a file in a folder of the bucket.

    Example:
        >>> from zoo.catalog import cards
        >>> cards.file_url("augreg", "index.csv")
        'https://storage.googleapis.com/vit_models/augreg/index.csv'
    """
    return f"{BUCKET}/{urllib.parse.quote(f'{folder}/{file}')}"


def _card(variant, release, file, mib, **fields):
    """Returns one card, with what all files of its release have in common."""
    slug = variant.lower().replace("_", "").replace("+", "-")
    folder = release.partition("-")[0]
    data_sets = tuple(release.partition("-")[2].split("+"))
    if folder.startswith("imagenet"):
        data_sets = tuple(folder.split("+"))
    elif folder != "augreg":
        data_sets = ("imagenet2012",)
    common = {
        "image_size": 224,
        "classes": 21843 if data_sets == ("imagenet21k",) else 1000,
        "representation_size": None,
        "usable_head": True,
        "accuracies": accuracies.published(variant, release),
    }
    return ModelCard(
        handle=f"{slug}/{release}",
        variant=variant,
        release=release,
        url=file_url(folder, f"{file}.npz"),
        file_size=None if mib is None else round(mib * 2**20),
        citation=CITATIONS[folder.partition("+")[0]],
        training_data=data_sets,
        **common | fields,
    )


def _cards():
    for variant, mib in _IMAGENET21K:
        yield _card(
            variant,
            "imagenet21k",
            variant,
            mib,
            representation_size=ARCHITECTURES[variant].hidden_size,
            usable_head=False,
            notes="The released head is all zeros: load it with a new head.",
        )
    for variant, suffix, image_size, mib in _IMAGENET2012:
        release = f"imagenet21k+imagenet2012{suffix}"
        yield _card(variant, release, variant + suffix, mib, image_size=image_size)
    for variant, mib, reason, notes in _SAM:
        inferred = (Inference("representation_size", reason),)
        yield _card(variant, "sam", variant, mib, notes=notes, inferred=inferred)
    for variant in _GSAM:
        yield _card(
            variant + GAP_SUFFIX,
            "gsam",
            variant + GAP_SUFFIX,
            None,
            notes="Has no class token: load it from its URL with pooling='gap'.",
            inferred=_GSAM_INFERRED,
        )
    for variant, name, setting, mib, rate, image_size, top1 in _AUGREG:
        release = "augreg-imagenet21k"
        file = f"{name}-i21k-300ep-lr_0.001-aug_{setting}"
        yield _card(variant, release, file, mib)
        measured = Accuracy("imagenet2012", "top1", top1, image_size, accuracies.README)
        yield _card(
            variant,
            f"{release}+imagenet2012",
            f"{file}--imagenet2012-steps_20k-lr_{rate}-res_{image_size}",
            None,
            image_size=image_size,
            accuracies=(measured,),
        )


CARDS = {card.handle: card for card in _cards()}
