"""The released Vision Transformer checkpoints, as data.

A handle is ``<variant>/<release>``, both as short as they can be and stay unique:
``vit-b16/imagenet21k``, ``r50-vit-l32/augreg-imagenet21k``. Where a model was
fine-tuned at two resolutions the recommended one, 384, has the bare name and the
other one ends in ``-224``.

Releases (all Apache-2.0, all in ``gs://vit_models``; `zoo.catalog.cards` has the rows):
    imagenet21k: ViT paper (https://arxiv.org/abs/2010.11929), pre-trained.
    imagenet21k+imagenet2012: the same, fine-tuned on ImageNet.
    augreg-imagenet21k: AugReg paper (https://arxiv.org/abs/2106.10270),
        pre-trained; the one file per variant that its authors recommend.
    augreg-imagenet21k+imagenet2012: the same, fine-tuned on ImageNet.
    sam: SAM paper (https://arxiv.org/abs/2106.01548), trained on ImageNet.
    gsam: GSAM paper (https://arxiv.org/abs/2203.08065), trained on ImageNet.

The name of any other AugReg file is a handle too, alone or behind ``augreg/``:
`zoo.augreg` reads their index. So is the name of a model in the registries of
``KERAS_VIT_REGISTRY``, or the path of its folder: `zoo.registry` reads those.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re

from zoo.catalog import augreg, registry
from zoo.catalog.cards import CARDS
from zoo.catalog.model_card import GAP_SUFFIX, CatalogError, ModelCard, either
from zoo.catalog.registry import PublishedModel
from zoo.store import hub

# A text that ends so is a path.
EXTENSIONS = (".npz", ".safetensors", ".h5")
_WORDNET = "https://storage.googleapis.com/bit_models/imagenet21k_wordnet"
_VARIANTS = tuple(dict.fromkeys(card.variant for card in CARDS.values()))

LABEL_FILES = {
    "imagenet2012": (
        "https://storage.googleapis.com/download.tensorflow.org/data/"
        "imagenet_class_index.json"
    ),
    "imagenet21k_ids": f"{_WORDNET}_ids.txt",
    "imagenet21k_lemmas": f"{_WORDNET}_lemmas.txt",
}


def get(handle: str) -> ModelCard | PublishedModel:
    """Returns the card of a handle.

    Args:
        handle: str, ``"<variant>/<release>"`` as `list_models` gives it; the release
            may end in its resolution (``"vit-b16/imagenet21k+imagenet2012-384"``).
            Or the name of an AugReg file, for which their index is downloaded once;
            the name of a published model, the path of its folder, or where it is on
            the Hugging Face hub, ``"hf://org/name"``, with which it is downloaded.

    Returns:
        A `ModelCard`, or a `PublishedModel`.

    Raises:
        CatalogError: there is no such handle; the message offers near misses.
        StoreError: the index of the AugReg files, or a registry, is needed and cannot
            be had.

    Example:
        >>> from zoo import catalog
        >>> catalog.get("r50-vit-l32/augreg-imagenet21k").variant
        'R50+ViT-L_32'
    """
    if augreg.is_file_name(handle):
        return augreg.card(handle)
    if (card := _released(handle)) is not None:
        return card
    if hub.is_handle(handle):
        return registry.read(hub.fetch(handle))
    # The name goes before a folder called so: ./name is the folder.
    published = registry.models()
    if handle in published:
        return published[handle]
    folder = os.path.expanduser(handle)
    if os.path.isfile(os.path.join(folder, registry.CARD)):
        return registry.read(folder)
    names = {name.lower(): name for name in [*CARDS, *published]}
    near = difflib.get_close_matches(handle.lower(), names, n=3, cutoff=0.5)
    cards = _of_slug(handle.partition("/")[0])
    cards = cards or [card for card in CARDS.values() if card.release == handle][:3]
    near = [card.handle for card in cards] or [names[name] for name in near]
    hint = f" Did you mean {either(near)}?" if near else ""
    raise CatalogError(
        f"No model is called {handle!r}.{hint} zoo.list_models() gives every handle, "
        f"those in {registry.VARIABLE} too."
    )


def named(text: str) -> ModelCard | PublishedModel | None:
    """Returns the card of the model that a text names, whatever folders are there.

    The registries are asked only for what can be no path of a file: a text without the
    ending of a file, at which there is none.

    Args:
        text: str.

    Returns:
        The card of a handle of the catalogue or of the name of a published model, None
        for any other text.

    Raises:
        CatalogError: a registry is asked and damaged.
        StoreError: a registry is asked and cannot be had.

    Example:
        >>> from zoo import catalog
        >>> catalog.named("vit-b16/sam").variant, catalog.named("./vit-b16/sam")
        ('ViT-B_16', None)
    """
    if augreg.is_file_name(text):
        return None
    if (card := _released(text)) is not None:
        return card
    is_file = text.endswith((*EXTENSIONS, ".keras")) or os.path.isfile(text)
    if is_file or not registry.is_name(text):
        return None
    return registry.models().get(text)


def is_name(text: str) -> bool:
    """Says whether a text names a model, see `named`.

    Example:
        >>> from zoo import catalog
        >>> catalog.is_name("vit-b16/sam"), catalog.is_name("./vit-b16/sam")
        (True, False)
    """
    return named(text) is not None


def is_release(text: str) -> bool:
    """Says whether any variant was released under a name.

    Args:
        text: str, as `find` takes it, but for the names of AugReg files.

    Example:
        >>> from zoo import catalog
        >>> catalog.is_release("sam"), catalog.is_release("./sam")
        (True, False)
    """
    return any(_match([card], text) is not None for card in CARDS.values())


def find(variant: str, release: str) -> ModelCard:
    """Returns the card of a variant in a release.

    Args:
        variant: str, e.g. ``"ViT-B_16"``.
        release: str, a name that `releases` gives, meaning the recommended
            resolution, or that name with the resolution behind it: ``"-224"``,
            ``"-384"``. Or the name of an AugReg file of that variant.

    Returns:
        A `ModelCard`.

    Raises:
        CatalogError: an unknown variant, or one that was not in that release; the
            message says what was released.
        StoreError: the index of the AugReg files is needed and cannot be had.

    Example:
        >>> from zoo import catalog
        >>> catalog.find("ViT-B_16", "imagenet21k+imagenet2012").image_size
        384
    """
    names = releases(variant)
    if augreg.is_file_name(release):
        card = augreg.card(release)
        if card.variant != variant:
            raise CatalogError(f"{release} holds a {card.variant}, not a {variant}.")
        return card
    card = _match([c for c in CARDS.values() if c.variant == variant], release)
    if card is None:
        raise CatalogError(
            f"{variant} was not released as {release!r}: choose {either(names)}."
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
            f"{either(near or _VARIANTS)}."
        )
    return tuple(card.release for card in CARDS.values() if card.variant == variant)


def default_classifier(variant: str) -> str:
    """Returns the release of a variant that answers with ImageNet's classes.

    Args:
        variant: str, e.g. ``"ViT-S_16"``.

    Returns:
        ``"augreg-imagenet21k+imagenet2012"`` where the variant is in it, else
        ``"imagenet21k+imagenet2012"``; for the two variants that were never released
        with such a head (H/14, R26+B/32) that of `default_release`.

    Raises:
        CatalogError: nothing was released under that name.

    Example:
        >>> from zoo import catalog
        >>> catalog.default_classifier("ViT-S_16")
        'augreg-imagenet21k+imagenet2012'
    """
    wanted = ("augreg-imagenet21k+imagenet2012", "imagenet21k+imagenet2012")
    return _first_released(variant, wanted) or default_release(variant)


def default_release(variant: str) -> str:
    """Returns the pre-trained release to start from for a variant.

    Args:
        variant: str, e.g. ``"ViT-S_16"``.

    Returns:
        ``"imagenet21k"`` where the variant is in it, else ``"augreg-imagenet21k"``.

    Raises:
        CatalogError: the variant was not released pre-trained on ImageNet-21k.

    Example:
        >>> from zoo import catalog
        >>> catalog.default_release("ViT-S_16")
        'augreg-imagenet21k'
    """
    found = _first_released(variant, ("imagenet21k", "augreg-imagenet21k"))
    if found is None:
        raise CatalogError(
            f"{variant} was not pre-trained on ImageNet-21k: choose "
            f"{either(releases(variant))}."
        )
    return found


def list_models(pattern: str = "*") -> list[str]:
    """Lists the handles that match a shell pattern.

    Args:
        pattern: str, with ``*``, ``?`` and ``[...]`` as in a shell. One that begins
            with ``augreg/`` lists files of the AugReg index, which is downloaded
            once; the others list what has a handle of its own, published models
            last.

    Returns:
        A list of str.

    Raises:
        CatalogError: a registry is damaged.
        StoreError: the index of the AugReg files, or a registry, is needed and cannot
            be had.

    Example:
        >>> from zoo import catalog
        >>> catalog.list_models("vit-h14/*")
        ['vit-h14/imagenet21k']
    """
    if pattern.startswith(augreg.FOLDER):
        handles = [augreg.FOLDER + name for name in augreg.file_names()]
    else:
        handles = [*CARDS, *registry.models()]
    return [handle for handle in handles if fnmatch.fnmatchcase(handle, pattern)]


def _first_released(variant, wanted):
    """Returns the first of the names in `wanted` that a variant has, or None."""
    names = releases(variant)
    return next((name for name in wanted if name in names), None)


def _slug(card):
    return card.handle.partition("/")[0]


def _of_slug(slug):
    """Returns the cards of the variant that a handle begins with."""
    return [
        card
        for card in CARDS.values()
        if slug in (_slug(card), _slug(card).removesuffix(GAP_SUFFIX))
    ]


def _released(handle):
    """Returns the released card that a handle names, or None."""
    slug, _, release = handle.partition("/")
    return _match(_of_slug(slug), release)


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
