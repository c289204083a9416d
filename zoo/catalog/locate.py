"""From what people call a model to the file that holds it."""

from __future__ import annotations

import os
import pathlib

from zoo import catalog, store
from zoo.catalog import EXTENSIONS, augreg
from zoo.catalog.model_card import CatalogError, ModelCard
from zoo.catalog.registry import PublishedModel
from zoo.store import hub


def locate(source: str | os.PathLike) -> pathlib.Path:
    """Returns the local file or folder of a model, downloading it the first time.

    A `pathlib.Path` is a path. A text is the first of these that it can be:

    1. where a variant is known, as in `keras_vit.ViT_B16(weights=...)`, one of the
       releases that `zoo.releases` gives, with or without its resolution;
    2. a name of the zoo: a handle of the catalogue, such as ``vit-b16/sam``, or a
       published model, but where the text ends as files do or there is such a file;
    3. a path at which there is a file or a folder, ``~`` being the home folder;
    4. `hf://org/name`, a URL, or the name of an AugReg file.

    So no folder takes the place of a name: ``./name`` is the folder.

    Args:
        source: a path, or a text as above; a URL is the `http(s)://` one of a file, a
            handle of the hub may end in `@revision`.

    Returns:
        `pathlib.Path` for `zoo.read`.

    Raises:
        CatalogError: no such handle.
        StoreError: the file cannot be had.

    Example:
        >>> import zoo
        >>> zoo.locate("tests/goldens/token.npz").name
        'token.npz'
    """
    if not isinstance(source, str):
        path = pathlib.Path(source).expanduser()
        return path if path.exists() else store.fetch(path)
    text = source
    if (card := catalog.named(text)) is not None:
        return fetch_card(card)
    path = pathlib.Path(text).expanduser()
    if text and path.exists():
        return path
    if hub.is_handle(text):
        return hub.fetch(text)
    named = text.endswith(EXTENSIONS) and not augreg.is_file_name(text)
    if named or "://" in text:
        return store.fetch(text)
    try:
        card = catalog.get(text)
    except CatalogError as error:
        raise CatalogError(f"There is no file or folder {text}. {error}") from error
    return fetch_card(card)


def fetch_card(card: ModelCard | PublishedModel) -> pathlib.Path:
    """Returns the local file of a card, downloading it the first time.

    Args:
        card: what `zoo.get` returns.

    Returns:
        `pathlib.Path`.

    Raises:
        StoreError: the file cannot be had, or is not the card's.

    Example:
        >>> import zoo
        >>> from zoo.locate import fetch_card
        >>> fetch_card(zoo.get("vit-b16/sam"))  # doctest: +SKIP
    """
    return store.fetch(card.url, file_size=card.file_size, sha256=card.sha256)
