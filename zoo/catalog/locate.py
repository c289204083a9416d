"""Finds the model or file that a name, a path or a URL means."""

from __future__ import annotations

import difflib
import fnmatch
import os
import pathlib

from zoo import store
from zoo.catalog import augreg, registry, released
from zoo.catalog.cards import CARDS
from zoo.catalog.model_card import CatalogError, ModelCard, either
from zoo.catalog.registry import PublishedModel
from zoo.files.opening import EXTENSIONS
from zoo.store import hub


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
    if not isinstance(source, str):
        path = pathlib.Path(source).expanduser()
        return path if path.exists() else store.fetch(path)
    if (card := named(source, variant)) is not None:
        return fetch_card(card)
    path = pathlib.Path(source).expanduser()
    # The release of another variant is a mistake, even where a folder has its name.
    is_release = variant is not None and released.is_release(source)
    if source and path.exists() and not is_release:
        return path
    if hub.is_handle(source):
        return hub.fetch(source)
    is_file_name = source.endswith(EXTENSIONS)
    if "://" in source or (is_file_name and not augreg.is_file_name(source)):
        return store.fetch(source)
    may_be_release = not (is_file_name or "/" in source or os.sep in source)
    if variant is not None and may_be_release:
        try:
            return fetch_card(released.find(variant, source))
        except CatalogError as error:
            raise CatalogError(f"{error} Or pass the path of a file.") from error
    try:
        return fetch_card(get(source))
    except CatalogError as error:
        raise CatalogError(f"There is no file or folder {source}. {error}") from error


def named(text: str, variant: str | None = None) -> ModelCard | PublishedModel | None:
    """Returns the card that a text names, None for paths, URLs and AugReg files.

    Registries are read only where the text cannot be the path of a file.
    """
    if augreg.is_file_name(text):
        return None
    if variant is not None and (card := released.BY_RELEASE.get((variant, text))):
        return card
    if (card := released.BY_HANDLE.get(text)) is not None:
        return card
    is_file = text.endswith((*EXTENSIONS, ".keras")) or os.path.isfile(text)
    if is_file or not registry.is_name(text):
        return None
    return registry.models().get(text)


def get(handle: str) -> ModelCard | PublishedModel:
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
    if (card := released.BY_HANDLE.get(handle)) is not None:
        return card
    if hub.is_handle(handle):
        return registry.read(hub.fetch(handle))
    published = registry.models()
    if handle in published:
        return published[handle]
    folder = os.path.expanduser(handle)
    if os.path.isfile(os.path.join(folder, registry.CARD)):
        return registry.read(folder)
    slug = handle.partition("/")[0]
    near = [name for name in CARDS if slug in released.slugs(CARDS[name])]
    near = near or [name for name in CARDS if CARDS[name].release == handle][:3]
    if not near:
        names = {name.lower(): name for name in [*CARDS, *published]}
        found = difflib.get_close_matches(handle.lower(), names, n=3, cutoff=0.5)
        near = [names[name] for name in found]
    hint = f" Did you mean {either(near)}?" if near else ""
    raise CatalogError(
        f"No model is called {handle!r}.{hint} zoo.list_models() lists every handle, "
        f"those in {registry.VARIABLE} too."
    )


def list_models(pattern: str = "*") -> list[str]:
    """Lists the handles that match a shell pattern.

    Args:
        pattern: str, with ``*``, ``?`` and ``[...]`` as in a shell. One that begins
            with ``augreg/`` lists files of the AugReg index, which is downloaded
            once; others list handles of released files, then of published models.

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
        handles = [*CARDS, *registry.models()]
    return [handle for handle in handles if fnmatch.fnmatchcase(handle, pattern)]


def fetch_card(card: ModelCard | PublishedModel) -> pathlib.Path:
    """Returns the local file of a card, downloading it the first time."""
    return store.fetch(card.url, file_size=card.file_size, sha256=card.sha256)
