"""From what people call a model to the file that holds it."""

from __future__ import annotations

import os
import pathlib

from zoo import augreg, catalog, hub, registry, store
from zoo.model_card import CatalogError, ModelCard
from zoo.registry import PublishedModel

EXTENSIONS = (".npz", ".safetensors", ".h5")


def locate(source: str | os.PathLike) -> pathlib.Path:
    """Returns the local file or folder of a model, downloading it the first time.

    Args:
        source: the name of a published model, a path, an `http(s)://` URL of a file,
            `hf://org/name` with or without `@revision`, or another handle that
            `zoo.get` knows.

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
    text = os.fspath(source)
    is_name = registry.is_name(text) and not os.path.isfile(text)
    if os.path.exists(text) and not (is_name and text in registry.models()):
        return pathlib.Path(text)
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
