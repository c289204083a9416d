"""Search in the cards of the released checkpoints.

A handle is ``<variant>/<release>``, for example ``vit-b16/imagenet21k`` or
``r50-vit-l32/augreg-imagenet21k``. Where a model was fine-tuned at two resolutions, the
recommended one, 384, has the bare name and the other one ends in ``-224``.

Releases (all Apache-2.0, all in ``gs://vit_models``; `zoo.catalog.cards` has the rows):
    imagenet21k: ViT paper (https://arxiv.org/abs/2010.11929), pre-trained.
    imagenet21k+imagenet2012: the same, fine-tuned on ImageNet.
    augreg-imagenet21k: AugReg paper (https://arxiv.org/abs/2106.10270),
        pre-trained; the one file per variant that its authors recommend.
    augreg-imagenet21k+imagenet2012: the same, fine-tuned on ImageNet.
    sam: SAM paper (https://arxiv.org/abs/2106.01548), trained on ImageNet.
    gsam: GSAM paper (https://arxiv.org/abs/2203.08065), trained on ImageNet.
"""

from __future__ import annotations

import difflib

from zoo.catalog import augreg
from zoo.catalog.cards import CARDS
from zoo.catalog.model_card import GAP_SUFFIX, CatalogError, ModelCard, either

_VARIANTS = tuple(dict.fromkeys(card.variant for card in CARDS.values()))
# By handle, and by variant and release; both may end in the image size.
BY_HANDLE: dict[str, ModelCard] = {}
BY_RELEASE: dict[tuple[str, str], ModelCard] = {}


def slugs(card: ModelCard) -> list[str]:
    """Returns the short names of a card's variant, which begin its handles."""
    slug = card.handle.partition("/")[0]
    return [slug, slug.removesuffix(GAP_SUFFIX)]


def is_release(text: str) -> bool:
    """Returns whether any variant has a release of this name, with or without a size.

    Handles (``vit-b16/sam``) and paths are not release names.
    """
    return any(release == text for _, release in BY_RELEASE)


def find(variant: str, release: str) -> ModelCard:
    """Returns the card of a variant in a release.

    Args:
        variant: str, e.g. ``"ViT-B_16"``.
        release: str, a name that `releases` gives, which means the recommended
            resolution, or that name followed by a resolution, as in ``"sam-224"``. Or
            the name of an AugReg file of that variant.

    Raises:
        CatalogError: an unknown variant, or one that is not in that release; the
            message lists what was released.
        StoreError: the index of the AugReg files is needed and not available.

    Example:
        >>> zoo.find("ViT-B_16", "imagenet21k+imagenet2012").image_size
        384
    """
    names = releases(variant)
    if augreg.is_file_name(release):
        card = augreg.card(release)
        if card.variant != variant:
            raise CatalogError(f"{release} holds a {card.variant}, not a {variant}.")
        return card
    card = BY_RELEASE.get((variant, release))
    if card is None:
        raise CatalogError(
            f"{variant} was not released as {release!r}: choose {either(names)}."
        )
    return card


def releases(variant: str) -> tuple[str, ...]:
    """Returns the names of the releases of a variant, in the catalogue's order.

    Args:
        variant: str, e.g. ``"ViT-B_16"``.

    Raises:
        CatalogError: nothing was released under that name.

    Example:
        >>> zoo.releases("ViT-H_14")
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
    """Returns the release of a variant with a head of ImageNet's classes.

    It is ``"augreg-imagenet21k+imagenet2012"`` if the variant is in it, else
    ``"imagenet21k+imagenet2012"``; that of `default_release` for the two variants
    without such a head (H/14, R26+B/32). Argument and errors are those of `releases`.

    Example:
        >>> zoo.default_classifier("ViT-S_16")
        'augreg-imagenet21k+imagenet2012'
    """
    wanted = ("augreg-imagenet21k+imagenet2012", "imagenet21k+imagenet2012")
    return _first_of(wanted, variant) or default_release(variant)


def default_release(variant: str) -> str:
    """Returns the pre-trained release to fine-tune a variant from.

    It is ``"imagenet21k"`` if the variant is in it, else ``"augreg-imagenet21k"``.

    Argument and errors are those of `releases`; it is a `CatalogError` too where the
    variant was not released pre-trained on ImageNet-21k.

    Example:
        >>> zoo.default_release("ViT-S_16")
        'augreg-imagenet21k'
    """
    found = _first_of(("imagenet21k", "augreg-imagenet21k"), variant)
    if found is None:
        raise CatalogError(
            f"{variant} was not pre-trained on ImageNet-21k: choose "
            f"{either(releases(variant))}."
        )
    return found


def _first_of(wanted, variant):
    known = releases(variant)
    return next((release for release in wanted if release in known), None)


for _card in CARDS.values():
    for _release in (_card.release, f"{_card.release}-{_card.image_size}"):
        BY_RELEASE.setdefault((_card.variant, _release), _card)
        for _slug in slugs(_card):
            BY_HANDLE.setdefault(f"{_slug}/{_release}", _card)
