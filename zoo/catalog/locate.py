"""Finds the model or file that a name, a path or a URL means.

A handle is ``<variant>/<release>``, for example ``vit-b16/imagenet21k`` or
``r50-vit-l32/augreg-imagenet21k``. Where a model was fine-tuned at two resolutions, the
recommended one, 384, has the bare name and the other one ends in ``-224``.

The releases are those of `released.csv`, their papers those of `citations.csv`. Of an
``augreg-`` release the catalogue has the one file per variant that its authors
recommend. Models of other families, such as ``dinov2-s14/lvd142m``, are those of
`families.csv`.
"""

import contextlib
import dataclasses
import difflib
import fnmatch
import os
import pathlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from zoo import store
from zoo.catalog import augreg, families, no_model, registry
from zoo.catalog.cards import CARDS
from zoo.catalog.families import HubModel
from zoo.catalog.labels import texts_of
from zoo.catalog.model_card import GAP_SUFFIX, CatalogError, ModelCard, either
from zoo.catalog.registry import PublishedModel
from zoo.catalog.similar import similar_releases, similar_variants
from zoo.common.regular_files import expand_home, missing_remedy, similar_path
from zoo.containers.opening import EXTENSIONS, models_in, open_file
from zoo.libraries.checkpoint import Checkpoint, read
from zoo.store import hub

Card = ModelCard | HubModel | PublishedModel
_VARIANTS = tuple(dict.fromkeys(card.variant for card in CARDS.values()))
# The cards by variant and release, of equal ones the first, and by handle; releases
# with and without their image size.
_BY_RELEASE: dict[tuple[str, str], ModelCard] = {}
for _card in CARDS.values():
    for _release in (_card.release, f"{_card.release}-{_card.image_size}"):
        _BY_RELEASE.setdefault((_card.variant, _release), _card)


def _slugs(card):
    """Returns the short names of a card's variant, which begin its handles."""
    slug = card.handle.partition("/")[0]
    return [slug, slug.removesuffix(GAP_SUFFIX)]


_BY_HANDLE = {
    f"{slug}/{release}": card
    for (_, release), card in _BY_RELEASE.items()
    for slug in _slugs(card)
} | families.MODELS


def locate(source: str | os.PathLike, variant: str | None = None) -> pathlib.Path:
    """Returns the file or folder of a model for `zoo.read`, downloading it once.

    A `pathlib.Path` is a path. A text is the first of these:

    1. where a variant is known, as in `keras_vit.ViT_B16(weights=...)`, one of the
       releases that `zoo.releases` gives, with or without its resolution;
    2. a handle of the catalogue, such as ``vit-b16/sam``;
    3. a published model of the registries, unless the text ends in the extension of a
       file or a file has this name;
    4. a file or a folder, ``~`` being the home folder;
    5. `hf://org/name`, a URL, or the name of an AugReg file.

    So no folder shadows a name: ``./name`` is the folder.

    Args:
        source: a path, or a text as above; a URL is the `http(s)://` one of a file, a
            handle of the hub may end in `@revision`.
        variant: such as ``"ViT-B_16"``, whose releases `source` may name.

    Raises:
        CatalogError: no such model.
        StoreError: the file is not available.

    Example:
        >>> zoo.locate("tests/goldens/token.npz").name
        'token.npz'
    """
    path, _ = resolve(source, variant).fetch()
    return path


class Place(NamedTuple):
    """What a name, a path or a URL means, before anything is downloaded.

    Args:
        fetch: function that downloads the model once, and returns its path and its
            card, None without one.
        path: that of a model on this machine which no card names, else None.
        card: that of a name, else None.
    """

    fetch: Callable[[], tuple[pathlib.Path, Card | None]]
    path: pathlib.Path | None = None
    card: Card | None = None


def resolve(source: str | os.PathLike, variant: str | None = None) -> Place:
    """Returns the place of a model, of which nothing is downloaded yet.

    So a name that means nothing is found at once. Only registries of published models
    are read here. Arguments and errors are those of `locate`.

    Example:
        >>> resolve("vit-b16/sam").path is None
        True
    """
    path = expand_home(source, "source")
    if not isinstance(source, str):
        return _on_disk(path)
    if (card := named(source, variant)) is not None:
        if isinstance(card, PublishedModel):
            models_in(card.folder)
        return Place(lambda: (fetch_card(card), card), card=card)
    # The release of another variant is a mistake, even where a folder has its name.
    names = {release for _, release in _BY_RELEASE} if variant is not None else ()
    if source and path.exists() and source not in names:
        return _on_disk(path)
    if hub.is_handle(source):
        return Place(partial(_from_hub, source))
    if augreg.is_file_name(source):
        # Only their index, which is downloaded, says whether there is such a file.
        return Place(partial(_from_augreg, source, variant))
    if "://" in source:
        return Place(lambda: (store.fetch(source), None))
    if source.endswith(EXTENSIONS):
        return _on_disk(path)
    raise _unknown(source, path, variant)


def check(source: str | os.PathLike, variant: str | None = None) -> None:
    """Refuses what means no model, without downloading one or reading its arrays.

    Arguments and errors are those of `locate`, or it is a `CheckpointError`: a path
    of something else, such as a folder of photos.

    Example:
        >>> check("vit-b16/sam")
    """
    place = resolve(source, variant)
    if place.path is not None:
        no_model.refuse(place.path)
        open_file(place.path)
    elif "://" in str(source) and not hub.is_handle(source):
        no_model.refuse_url(str(source))


def _on_disk(path):
    """Returns the place of a path, which must exist."""
    if not path.exists():
        store.fetch(path)  # raises the error
    models_in(path)
    return Place(lambda: (path, _card_in(path)), path)


def _card_in(folder):
    """Returns the card of the published model in a folder, None without one."""
    with contextlib.suppress(CatalogError):
        return registry.read(folder) if (folder / registry.CARD).exists() else None


def _from_hub(handle):
    folder = hub.fetch(handle)
    return folder, families.OF_HUB.get(handle) or _card_in(folder)


def _from_augreg(name, variant):
    card = augreg.card(name)
    _check_variant(card, name, variant)
    return fetch_card(card), card


def _check_variant(card, name, variant):
    if variant not in (None, card.variant):
        raise CatalogError(f"{name} holds a {card.variant}, not a {variant}.")


def _unknown(source, path, variant):
    """Returns the error of a text that means no model."""
    if variant is not None and "/" not in source and os.sep not in source:
        try:
            problem = _no_release(variant, source, releases(variant))
        except CatalogError as error:
            problem = str(error)
        return CatalogError(f"{problem} Or pass the path of a file.")
    text = f"There is no file or folder {source}: {missing_remedy(path)}"
    near = _similar_handles(source)
    # With a folder, and like a path that is there and like no name, it is a path.
    if near or "/" not in source or similar_path(path) is None:
        text += f" {_no_handle(source, near)}"
    return CatalogError(text)


def _no_handle(handle, near):
    hint = f" Did you mean {either(near)}?" if near else ""
    return (
        f"No model is called {handle!r}.{hint} zoo.list_models() lists every handle, "
        f"those in {registry.VARIABLE} too."
    )


def _no_release(variant, release, names):
    near = similar_releases(release, names)
    hint = f" Did you mean {either(near)}?" if near else ""
    return f"{variant} was not released as {release!r}.{hint} Choose {either(names)}."


def read_located(
    source: str | os.PathLike, variant: str | None = None, num_heads: int | None = None
) -> Checkpoint:
    """Returns the checkpoint of what `locate` finds.

    It computes what its card says where one repository serves two networks, and its
    outputs have the names of the card.

    Args:
        source: as of `locate`.
        variant: as of `locate`.
        num_heads: as of `zoo.read`.
    """
    path, card = resolve(source, variant).fetch()
    no_model.refuse(path)
    semantics = card.semantics if isinstance(card, HubModel) else None
    checkpoint = read(path, semantics=semantics, num_heads=num_heads)
    names = getattr(card, "class_names", None)
    if names is None or checkpoint.classes != card.classes:
        return checkpoint
    head = dataclasses.replace(checkpoint.head, class_names=names)
    return dataclasses.replace(checkpoint, head=head)


def with_names(checkpoint: Checkpoint) -> Checkpoint:
    """Returns a checkpoint with the names of a list of `zoo.class_names` as texts.

    So other libraries can be told them. Where the list cannot be downloaded a warning
    says so, and there are no names.
    """
    try:
        names = texts_of(checkpoint.head.class_names)
    except store.StoreError as error:
        warnings.warn(f"Names of classes are left out: {error}", stacklevel=2)
        names = None
    head = dataclasses.replace(checkpoint.head, class_names=names)
    return dataclasses.replace(checkpoint, head=head)


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
    raise CatalogError(_no_handle(handle, _similar_handles(handle)))


def _similar_handles(handle):
    slug = handle.partition("/")[0]
    if near := families.similar(handle):
        return near
    if near := [name for name in CARDS if slug in _slugs(CARDS[name])]:
        return near
    if near := [name for name in CARDS if CARDS[name].release == handle]:
        return near[:3]
    if variants := similar_variants(handle, _VARIANTS)[:1]:
        of_variant = [name for name in CARDS if CARDS[name].variant in variants]
        releases_of = {CARDS[name].release: name for name in reversed(of_variant)}
        same = similar_releases(handle, releases_of)
        return [releases_of[release] for release in same] or of_variant
    names = {
        name.lower(): name for name in (*CARDS, *families.MODELS, *registry.models())
    }
    near = difflib.get_close_matches(handle.lower(), names, n=3, cutoff=0.5)
    return [names[name] for name in near]


def published(source: str | os.PathLike) -> PublishedModel | None:
    """Returns the card of a published model by what `locate` takes, None for others."""
    place = resolve(source)
    card = place.card
    if card is None and (place.path is not None or hub.is_handle(source)):
        _, card = place.fetch()
    return card if isinstance(card, PublishedModel) else None


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
    names = releases(variant)
    if augreg.is_file_name(release):
        card = augreg.card(release)
        _check_variant(card, release, variant)
        return card
    card = _BY_RELEASE.get((variant, release))
    if card is None:
        raise CatalogError(_no_release(variant, release, names))
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
    if variant not in _VARIANTS:
        near = similar_variants(variant, _VARIANTS)
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


def fetch_card(card: Card) -> pathlib.Path:
    """Returns the local file or folder of a card, downloading it the first time.

    A `UserWarning` says what a licence does not allow, before the download.
    """
    if not isinstance(card, HubModel):
        return store.fetch(card.url, file_size=card.file_size, sha256=card.sha256)
    if not card.is_free and hub.cached(card.url) is None:
        warnings.warn(f"{card.handle} has the licence {card.terms}.", stacklevel=2)
    return hub.fetch(card.url)
