"""Finds the model or file that a name, a path or a URL means."""

import dataclasses
import os
import pathlib
import warnings
from typing import NamedTuple

from zoo import store
from zoo.catalog import augreg, no_model, registry
from zoo.catalog.families import HubModel
from zoo.catalog.handles import (
    RELEASES,
    Card,
    augreg_card,
    named,
    releases,
)
from zoo.catalog.labels import texts_of
from zoo.catalog.model_card import CatalogError
from zoo.catalog.registry import PublishedModel
from zoo.catalog.similar import no_handle, no_release, similar_handles
from zoo.common.regular_files import expand_home, missing_remedy, similar_path
from zoo.containers.opening import EXTENSIONS, models_in, open_file
from zoo.libraries.checkpoint import Checkpoint, read
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
    path, _ = resolve(source, variant).fetch()
    return path


class Place(NamedTuple):
    """What a name, a path or a URL means, before anything is downloaded.

    Args:
        source: the name, path or URL.
        variant: that a name means a file of, None of any.
        path: that of a model on this machine which no card names, else None.
        card: that of a name, else None.
    """

    source: str
    variant: str | None = None
    path: pathlib.Path | None = None
    card: Card | None = None

    def fetch(self) -> tuple[pathlib.Path, Card | None]:
        """Downloads the model once, and returns its path and its card, if it has one.

        A `UserWarning` says what a licence does not allow, before the download.
        """
        path, card = self.path, self.card
        if path is None and card is None and augreg.is_file_name(self.source):
            card = augreg_card(self.source, self.variant)
        if card is not None:
            return fetch_card(card), card
        if path is None:
            fetch = hub.fetch if hub.is_handle(self.source) else store.fetch
            path = fetch(self.source)
        return path, registry.of_folder(path)


def resolve(source: str | os.PathLike, variant: str | None = None) -> Place:
    """Returns the place of a model, of which nothing is downloaded yet.

    So a name that means nothing is found at once. Only registries of published models
    are read here. Arguments and errors are those of `locate`.

    Example:
        >>> resolve("vit-b16/sam").path is None
        True
    """
    path = expand_home(source, "source")
    if isinstance(source, str):
        if (card := named(source, variant)) is not None:
            if isinstance(card, PublishedModel):
                models_in(card.folder)
            return Place(source, card=card)
        # The release of another variant is a mistake, even where a folder is called so.
        is_release = variant is not None and source in RELEASES
        if not source or is_release or not path.exists():
            # Only the index of AugReg, which is downloaded, says what files it has.
            if "://" in source or augreg.is_file_name(source):
                return Place(source, variant)
            if not source.endswith(EXTENSIONS):
                raise _unknown(source, path, variant)
    if not path.exists():
        store.fetch(path)  # raises the error
    models_in(path)
    return Place(str(source), path=path)


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


def _unknown(source, path, variant):
    """Returns the error of a text that means no model."""
    if variant is not None and "/" not in source and os.sep not in source:
        try:
            problem = no_release(variant, source, releases(variant))
        except CatalogError as error:
            problem = str(error)
        return CatalogError(f"{problem} Or pass the path of a file.")
    text = f"There is no file or folder {source}: {missing_remedy(path)}"
    near = similar_handles(source)
    # With a folder, and like a path that is there and like no name, it is a path.
    if near or "/" not in source or similar_path(path) is None:
        text += f" {no_handle(source, near)}"
    return CatalogError(text)


def read_located(
    source: str | os.PathLike | Checkpoint,
    variant: str | None = None,
    num_heads: int | None = None,
) -> Checkpoint:
    """Returns the checkpoint of what `locate` finds, or one that it is given.

    It computes what its card says where one repository serves two networks, and it and
    its outputs have the names of the card.

    Args:
        source: as of `locate`, or a `Checkpoint`.
        variant: as of `locate`.
        num_heads: as of `zoo.read`.
    """
    if isinstance(source, Checkpoint):
        return source
    path, card = resolve(source, variant).fetch()
    no_model.refuse(path)
    semantics = card.semantics if isinstance(card, HubModel) else None
    checkpoint = read(path, semantics=semantics, num_heads=num_heads)
    if isinstance(card, PublishedModel):
        checkpoint = dataclasses.replace(checkpoint, name=card.name)
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


def fetch_card(card: Card) -> pathlib.Path:
    """Returns the local file or folder of a card, downloading it the first time.

    A `UserWarning` says what a licence does not allow, before the download.
    """
    if not isinstance(card, HubModel):
        return store.fetch(card.url, file_size=card.file_size, sha256=card.sha256)
    if card.added_to:
        raise CatalogError(
            f"{card.repository} has the differences of {card.handle} to the weights of "
            f"{card.added_to}, which are gated: add them up by transformers' "
            "convert_eomt_dinov3_to_hf.py, and pass the folder that it writes."
        )
    if not card.is_free and hub.cached(card.url) is None:
        warnings.warn(f"{card.handle} has the licence {card.terms}.", stacklevel=2)
    return hub.fetch(card.url)
