"""The names of the models: their handles, variants and releases, and their cards.

A handle is ``<variant>/<release>``, for example ``vit-b16/imagenet21k`` or
``r50-vit-l32/augreg-imagenet21k``. Where a model was fine-tuned at two resolutions, the
recommended one, 384, has the bare name and the other one ends in ``-224``.

The releases are those of `released.csv`, their papers those of `citations.csv`. Of an
``augreg-`` release the catalogue has the one file per variant that its authors
recommend. Models of other families, such as ``dinov2-s14/lvd142m``, are those of
`families.csv`.
"""

import fnmatch
import os

from zoo.catalog import augreg, families, registry
from zoo.catalog.cards import CARDS, RELEASED_VARIANTS
from zoo.catalog.families import HubModel
from zoo.catalog.model_card import CatalogError, ModelCard, either
from zoo.catalog.registry import PublishedModel
from zoo.catalog.similar import (
    no_handle,
    no_release,
    similar_handles,
    similar_variants,
)
from zoo.common.regular_files import expand_home
from zoo.containers.opening import EXTENSIONS
from zoo.store import hub

Card = ModelCard | HubModel | PublishedModel
# The cards by variant and release, of equal ones the first; releases with and without
# their image size.
_BY_RELEASE: dict[tuple[str, str], ModelCard] = {}
for _card in CARDS.values():
    for _release in (_card.release, f"{_card.release}-{_card.image_size}"):
        _BY_RELEASE.setdefault((_card.variant, _release), _card)
RELEASES = frozenset(release for _, release in _BY_RELEASE)
_BY_HANDLE: dict[str, ModelCard | HubModel] = {
    f"{slug}/{release}": card
    for (_, release), card in _BY_RELEASE.items()
    for slug in card.slugs
}
_BY_HANDLE |= families.MODELS | families.OF_HUB


def named(text: str, variant: str | None = None) -> Card | None:
    """Returns the card that a text names, None for paths, URLs and AugReg files.

    Registries are read only where the text cannot be the path of a file.
    """
    if augreg.is_file_name(text):
        return None
    if variant is not None and (card := _BY_RELEASE.get((variant, text))):
        return card
    if (card := _BY_HANDLE.get(text)) is not None:
        return card
    is_file = text.endswith((*EXTENSIONS, ".keras")) or os.path.isfile(text)
    if is_file or not registry.is_name(text):
        return None
    return registry.models().get(text)


def get(handle: str) -> Card:
    """Returns the card of a handle.

    Args:
        handle: str, ``"<variant>/<release>"`` as `list_models` gives it; the release
            may end in its resolution (``"vit-b16/imagenet21k+imagenet2012-384"``).
            Or the name of an AugReg file, whose index is downloaded once; the name of
            a published model, the path of its folder, or its place on the Hugging Face
            hub, ``"hf://org/name"``, with which it is downloaded.

    Raises:
        CatalogError: there is no such handle; the message offers near misses.
        StoreError: the index of the AugReg files, or a registry, is needed and not
            available.

    Example:
        >>> zoo.get("r50-vit-l32/augreg-imagenet21k").variant
        'R50+ViT-L_32'
    """
    if augreg.is_file_name(handle):
        return augreg.card(handle)
    if (card := _BY_HANDLE.get(handle)) is not None:
        return card
    if hub.is_handle(handle):
        return registry.read(hub.fetch(handle))
    if (card := registry.models().get(handle)) is not None:
        return card
    folder = expand_home(handle, "handle")
    if (folder / registry.CARD).exists():
        return registry.read(folder)
    raise CatalogError(no_handle(handle, similar_handles(handle)))


def list_models(pattern: str = "*") -> list[str]:
    """Lists the handles that match a shell pattern.

    Args:
        pattern: str, with ``*``, ``?`` and ``[...]`` as in a shell. One that begins
            with ``augreg/`` lists files of the AugReg index, which is downloaded
            once; others list handles of released files, then of other families and of
            published models.

    Raises:
        CatalogError: a registry is damaged.
        StoreError: as for `get`.

    Example:
        >>> zoo.list_models("vit-h14/*")
        ['vit-h14/imagenet21k']
    """
    if pattern.startswith(augreg.FOLDER):
        handles = [augreg.FOLDER + name for name in augreg.file_names()]
    else:
        handles = [*CARDS, *families.MODELS, *registry.models()]
    return [handle for handle in handles if fnmatch.fnmatchcase(handle, pattern)]


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
    releases(variant)  # raises the error of a variant that there is not
    if augreg.is_file_name(release):
        return augreg_card(release, variant)
    card = _BY_RELEASE.get((variant, release))
    if card is None:
        raise CatalogError(no_release(variant, release, releases(variant)))
    return card


def releases(variant: str) -> tuple[str, ...]:
    """Returns the names of the releases of a variant, in the catalogue's order.

    Args:
        variant: str, e.g. ``"ViT-B_16"``.

    Returns:
        tuple of str, of these (`zoo.get` has the paper, accuracies and more of each):

        - ``imagenet21k``: the paper's, https://arxiv.org/abs/2010.11929;
          ``imagenet21k+imagenet2012`` the same, fine-tuned on ImageNet;
          ``imagenet21k+imagenet2012-224`` at 224 pixels.
        - ``augreg-imagenet21k``, ``augreg-imagenet21k+imagenet2012``: the best of those
          with augmentation and regularization, https://arxiv.org/abs/2106.10270.
        - ``sam`` and ``gsam``: trained on ImageNet alone, from flat minima,
          https://arxiv.org/abs/2106.01548 and https://arxiv.org/abs/2203.08065.

    Raises:
        CatalogError: nothing was released under that name.

    Example:
        >>> zoo.releases("ViT-H_14")
        ('imagenet21k',)
    """
    if variant not in RELEASED_VARIANTS:
        near = similar_variants(variant, RELEASED_VARIANTS)
        raise CatalogError(
            f"No released variant is called {variant!r}: choose "
            f"{either(near or RELEASED_VARIANTS)}."
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
    release = _first_of(("imagenet21k", "augreg-imagenet21k"), variant)
    if release is None:
        raise CatalogError(
            f"{variant} was not pre-trained on ImageNet-21k: choose "
            f"{either(releases(variant))}."
        )
    return release


def _first_of(wanted, variant):
    known = releases(variant)
    return next((release for release in wanted if release in known), None)


def augreg_card(name: str, variant: str | None) -> ModelCard:
    """Returns the card of an AugReg file, which must hold the variant, if one is given.

    Errors are those of `get`.
    """
    card = augreg.card(name)
    if variant not in (None, card.variant):
        raise CatalogError(f"{name} holds a {card.variant}, not a {variant}.")
    return card
