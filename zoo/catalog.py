"""The released Vision Transformer checkpoints, as data.

A handle is ``<variant>/<release>``, both as short as they can be and stay unique:
``vit-b16/imagenet21k``, ``r50-vit-l32/augreg-imagenet21k``. Where a model was
fine-tuned at two resolutions the recommended one, 384, has the bare name and the
other one ends in ``-224``.

Releases (all Apache-2.0, all in ``gs://vit_models``):
    imagenet21k: ViT paper (https://arxiv.org/abs/2010.11929), pre-trained.
    imagenet21k+imagenet2012: the same, fine-tuned on ImageNet.
    augreg-imagenet21k: AugReg paper (https://arxiv.org/abs/2106.10270),
        pre-trained; the one file per variant that its authors recommend.
    augreg-imagenet21k+imagenet2012: the same, fine-tuned on ImageNet.
    sam: SAM paper (https://arxiv.org/abs/2106.01548), trained on ImageNet.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import re
import urllib.parse

_BUCKET = "https://storage.googleapis.com/vit_models"
_WORDNET = "https://storage.googleapis.com/bit_models/imagenet21k_wordnet"

LABEL_FILES = {
    "imagenet2012": (
        "https://storage.googleapis.com/download.tensorflow.org/data/"
        "imagenet_class_index.json"
    ),
    "imagenet21k_ids": f"{_WORDNET}_ids.txt",
    "imagenet21k_lemmas": f"{_WORDNET}_lemmas.txt",
}


class CatalogError(ValueError):
    """A model, variant or release that the catalogue does not hold."""


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What is known about one released file.

    Args:
        handle: str, unique name, e.g. ``"vit-b16/imagenet21k"``.
        variant: str, architecture as the paper writes it, e.g. ``"ViT-B_16"``.
        release: str, e.g. ``"imagenet21k+imagenet2012-224"``.
        image_size: int, side in pixels of the square images it was trained on.
        classes: int, outputs of the released head.
        representation_size: int or None, width of the released ``pre_logits``.
        usable_head: bool, False where the released head is all zeros.
        url: str, where the file is.
        file_size: int or None, bytes, approximate (from a listing that rounds to
            as little as two digits).
        sha256: str or None; no checksum of a released file has been published.
        top1: float or None, published ImageNet top-1 accuracy in percent.
        top1_source: str or None, where `top1` was published.
        licence: str, SPDX identifier.
        notes: str, what a user should know; what was inferred says so.

    Example:
        >>> from zoo import catalog
        >>> catalog.get("vit-b16/imagenet21k").usable_head
        False
    """

    handle: str
    variant: str
    release: str
    image_size: int
    classes: int
    representation_size: int | None
    usable_head: bool
    url: str
    file_size: int | None = None
    sha256: str | None = None
    top1: float | None = None
    top1_source: str | None = None
    licence: str = "Apache-2.0"
    notes: str = ""


_ZERO_HEAD = "The released head is all zeros: load it with a new head."
_PAPER = "ViT paper, Table 5 (the paper's own run; this file was not measured)"
_TIMM = "timm results-imagenet.csv, bicubic evaluation of this file at 384"
_README = "google-research/vision_transformer README"
_SAM_NOTE = "ImageNet only. That it has no pre_logits is inferred from "
_SAM_SIZE = _SAM_NOTE + "the file's size."
_SAM_KIN = _SAM_NOTE + "ViT-B_16's file; its own size is not known."

# variant, representation size, MiB
_IMAGENET21K = (
    ("ViT-B_8", 768, 393.72),
    ("ViT-B_16", 768, 393.69),
    ("ViT-B_32", 768, 400.01),
    ("ViT-L_16", 1024, 1.22 * 1024),
    ("ViT-L_32", 1024, 1.23 * 1024),
    ("ViT-H_14", 1280, 2.46 * 1024),
    ("R26+ViT-B_32", 768, 450.23),
    ("R50+ViT-B_16", 768, 439.85),
    ("R50+ViT-L_32", 1024, 1.31 * 1024),
)
# variant, image size, MiB, top-1, its source
_IMAGENET2012 = (
    ("ViT-B_8", 384, 334.78, None, None),
    ("ViT-B_16", 384, 331.4, 84.21, _TIMM),
    ("ViT-B_16", 224, 330.29, 81.2, _README),
    ("ViT-B_32", 384, 336.89, 81.28, _PAPER),
    ("ViT-L_16", 384, 1.14 * 1024, 85.15, _PAPER),
    ("ViT-L_16", 224, 1.13 * 1024, 82.7, _README),
    ("ViT-L_32", 384, 1.14 * 1024, 81.51, _TIMM),
    ("R50+ViT-B_16", 384, 377.57, 84.99, _TIMM),
)
# variant, MiB, top-1, notes
_SAM = (
    (
        "ViT-S_16",
        252.57,
        None,
        "ImageNet only. The file is three times the model: it also holds the "
        "optimizer's state (inferred from its size), which is skipped on reading.",
    ),
    ("ViT-B_16", 330.3, 80.25, _SAM_SIZE),
    ("ViT-B_32", 336.61, 73.70, _SAM_SIZE),
    ("ViT-L_16", None, None, _SAM_KIN),
    ("ViT-L_32", None, None, _SAM_KIN),
)
# variant, file, MiB; then rate, image size and top-1 of its fine-tuned file
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


def _card(variant, release, folder, file, mib, **fields):
    """Returns one card, its handle and URL spelled from the table's columns."""
    slug = variant.lower().replace("_", "").replace("+", "-")
    return ModelCard(
        handle=f"{slug}/{release}",
        variant=variant,
        release=release,
        url=f"{_BUCKET}/{urllib.parse.quote(f'{folder}/{file}.npz')}",
        file_size=None if mib is None else round(mib * 2**20),
        **fields,
    )


def _cards():
    """Yields every card of the tables above."""
    for variant, representation_size, mib in _IMAGENET21K:
        yield _card(
            variant,
            "imagenet21k",
            "imagenet21k",
            variant,
            mib,
            image_size=224,
            classes=21843,
            representation_size=representation_size,
            usable_head=False,
            notes=_ZERO_HEAD,
        )
    tuned = {"classes": 1000, "representation_size": None, "usable_head": True}
    for variant, image_size, mib, top1, source in _IMAGENET2012:
        folder = "imagenet21k+imagenet2012"
        suffix = "-224" if image_size == 224 else ""
        yield _card(
            variant,
            folder + suffix,
            folder,
            variant + suffix,
            mib,
            image_size=image_size,
            top1=top1,
            top1_source=source,
            **tuned,
        )
    for variant, mib, top1, notes in _SAM:
        yield _card(
            variant,
            "sam",
            "sam",
            variant,
            mib,
            image_size=224,
            top1=top1,
            top1_source=top1 and "timm results-imagenet.csv, this file at 224",
            notes=notes,
            **tuned,
        )
    for variant, name, setting, mib, rate, image_size, top1 in _AUGREG:
        file = f"{name}-i21k-300ep-lr_0.001-aug_{setting}"
        yield _card(
            variant,
            "augreg-imagenet21k",
            "augreg",
            file,
            mib,
            image_size=224,
            classes=21843,
            representation_size=None,
            usable_head=True,
            notes="Size not listed." if mib is None else "",
        )
        yield _card(
            variant,
            "augreg-imagenet21k+imagenet2012",
            "augreg",
            f"{file}--imagenet2012-steps_20k-lr_{rate}-res_{image_size}",
            None,
            image_size=image_size,
            top1=top1,
            top1_source=f"{_README}, {image_size} pixels",
            notes="Size not listed.",
            **tuned,
        )


_CARDS = {card.handle: card for card in _cards()}
_VARIANTS = tuple(dict.fromkeys(card.variant for card in _CARDS.values()))


def get(handle: str) -> ModelCard:
    """Returns the card of a handle.

    Args:
        handle: str, ``"<variant>/<release>"`` as `list_models` gives it; the release
            may end in its resolution (``"vit-b16/imagenet21k+imagenet2012-384"``).

    Returns:
        A `ModelCard`.

    Raises:
        CatalogError: there is no such handle; the message offers near misses.

    Example:
        >>> from zoo import catalog
        >>> catalog.get("r50-vit-l32/augreg-imagenet21k").variant
        'R50+ViT-L_32'
    """
    slug, _, release = handle.partition("/")
    cards = [card for card in _CARDS.values() if card.handle.split("/")[0] == slug]
    card = _match(cards, release)
    if card is None:
        near = difflib.get_close_matches(handle.lower(), _CARDS, n=3, cutoff=0.5)
        near = [card.handle for card in cards] or near
        hint = f" Did you mean {_or(near)}?" if near else ""
        raise CatalogError(
            f"No released model is called {handle!r}.{hint} "
            "zoo.list_models() gives every handle."
        )
    return card


def find(variant: str, release: str) -> ModelCard:
    """Returns the card of a variant in a release.

    Args:
        variant: str, e.g. ``"ViT-B_16"``.
        release: str, a name that `releases` gives, meaning the recommended
            resolution, or that name with the resolution behind it: ``"-224"``,
            ``"-384"``.

    Returns:
        A `ModelCard`.

    Raises:
        CatalogError: an unknown variant, or one that was not in that release; the
            message says what was released.

    Example:
        >>> from zoo import catalog
        >>> catalog.find("ViT-B_16", "imagenet21k+imagenet2012").image_size
        384
    """
    names = releases(variant)
    card = _match([c for c in _CARDS.values() if c.variant == variant], release)
    if card is None:
        raise CatalogError(
            f"{variant} was not released as {release!r}: choose {_or(names)}."
        )
    return card


def releases(variant: str) -> tuple[str, ...]:
    """Returns the names of the releases that hold a variant.

    Args:
        variant: str, e.g. ``"ViT-B_16"``.

    Returns:
        A tuple of str, in the catalogue's order.

    Raises:
        CatalogError: nothing was released under that name.

    Example:
        >>> from zoo import catalog
        >>> catalog.releases("ViT-H_14")
        ('imagenet21k',)
    """
    if variant not in _VARIANTS:
        near = difflib.get_close_matches(variant, _VARIANTS, n=3, cutoff=0.5)
        raise CatalogError(
            f"No released variant is called {variant!r}: choose "
            f"{_or(near or _VARIANTS)}."
        )
    return tuple(card.release for card in _CARDS.values() if card.variant == variant)


def default_release(variant: str) -> str:
    """Returns the pre-trained release to start from for a variant.

    Args:
        variant: str, e.g. ``"ViT-S_16"``.

    Returns:
        ``"imagenet21k"`` where the variant is in it, else ``"augreg-imagenet21k"``.

    Raises:
        CatalogError: nothing was released under that name.

    Example:
        >>> from zoo import catalog
        >>> catalog.default_release("ViT-S_16")
        'augreg-imagenet21k'
    """
    names = releases(variant)
    return "imagenet21k" if "imagenet21k" in names else "augreg-imagenet21k"


def list_models(pattern: str = "*") -> list[str]:
    """Lists the handles that match a shell pattern.

    Args:
        pattern: str, with ``*``, ``?`` and ``[...]`` as in a shell.

    Returns:
        A list of str.

    Example:
        >>> from zoo import catalog
        >>> catalog.list_models("vit-h14/*")
        ['vit-h14/imagenet21k']
    """
    return [handle for handle in _CARDS if fnmatch.fnmatchcase(handle, pattern)]


def _match(cards, release):
    """Returns the one of `cards` that `release` names, or None."""
    name, image_size = release, None
    if sized := re.fullmatch(r"(.+)-([0-9]+)", release):
        name, image_size = sized[1], int(sized[2])
    for card in cards:
        if card.release == release:
            return card
    for card in cards:
        if card.release == name and card.image_size == image_size:
            return card
    return None


def _or(names):
    """Joins names for an error message."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
