"""Registries of models that users publish: folders, local or served over HTTP.

::

    registry/
      registry.json          the cards of all models, for servers that list no folders
      flowers-vit-ti16/
        model.json           its card
        model.npz            its weights, or model.safetensors
        README.md, model.keras, saved_model/, ...

Environment:
    KERAS_VIT_REGISTRY: the registries, folders or `http(s)://` URLs, separated by
        commas. Of several models of one name the first is used.

`keras-vit publish` writes them.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import tempfile
import urllib.parse
from typing import Any

from zoo import store
from zoo.catalog.model_card import CatalogError
from zoo.common import limits, regular_files
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import brief, is_safe
from zoo.containers.opening import CARD
from zoo.libraries.description import MALFORMED

VARIABLE = "KERAS_VIT_REGISTRY"
INDEX = "registry.json"
WEIGHTS = ("model.npz", "model.safetensors")
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
# Names that registries and servers use themselves.
_RESERVED = (INDEX, "index.html", "index.htm")


@dataclasses.dataclass(frozen=True)
class PublishedModel:
    """The card of a published model.

    Args:
        name: str, its handle: letters, digits, `.`, `_` and `-`.
        architecture: dict of str to what `keras_vit.ViTConfig` takes.
        image_size: (height, width) in pixels.
        channels: int, of its images.
        classes: int.
        class_names: tuple of str, in the order of the head.
        parameters: int.
        weights: str, `"model.npz"` or `"model.safetensors"`.
        file_size: int, bytes of the weights.
        sha256: str, hexadecimal, of the weights.
        data_set: str, name of the data set that it was fine-tuned on.
        metrics: fractions, not percent, on the data set's test split.
        base: str or None, the weights that it was fine-tuned from.
        variant: str or None, such as `"ViT-B_16"`.
        licence: str, as the Hugging Face hub writes it.
        folder: str, the path or URL of its folder.

    Raises:
        ValueError: a field has a wrong type or value.

    Example:
        >>> zoo.get("flowers-vit-ti16").class_names  # doctest: +SKIP
        ('daisy', 'rose')
    """

    name: str
    architecture: dict[str, Any]
    image_size: tuple[int, int]
    channels: int
    classes: int
    class_names: tuple[str, ...]
    parameters: int
    weights: str
    file_size: int
    sha256: str
    data_set: str
    metrics: dict[str, float]
    base: str | None
    variant: str | None
    licence: str
    folder: str = ""

    def __post_init__(self):
        for name in ("image_size", "class_names"):
            if not isinstance(getattr(self, name), (list, tuple)):
                raise ValueError(f"its {name} is not a list")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        counts = (self.channels, self.classes, self.parameters, self.file_size)
        are_counts = map(_is_count, (*self.image_size, *counts))
        _require(all(are_counts), "its sizes are not all integers from 0 on")
        for table in (self.architecture, self.metrics):
            is_table = isinstance(table, dict)
            _require(is_table, "its architecture and metrics are not both tables")
        texts = [self.name, self.weights, self.sha256, self.data_set, self.licence]
        texts += [*self.class_names, *self.architecture, *self.metrics]
        texts += [text for text in (self.base, self.variant) if text is not None]
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"{brief(text)} is not text")
            if not is_safe(text):
                raise ValueError(f"{brief(text)} has control characters")
        name, weights, checksum = map(brief, (self.name, self.weights, self.sha256))
        _require(is_name(self.name), f"{name} is not a valid name of a model")
        _require(self.weights in WEIGHTS, f"its weights are called {weights}")
        is_checksum = re.fullmatch("[0-9a-f]{64}", self.sha256)
        _require(is_checksum, f"{checksum} is not a SHA-256 checksum")
        lengths = len(self.class_names), len(self.image_size)
        _require(
            lengths == (self.classes, 2), "it has another number of classes or of sides"
        )
        _require(
            all(map(_is_metric, self.metrics.values())), "its metrics are not numbers"
        )

    @property
    def handle(self) -> str:
        """The name that `zoo.get` takes."""
        return self.name

    @property
    def is_hybrid(self) -> bool:
        """Whether a ResNet precedes the transformer."""
        return self.architecture.get("resnet_stages") is not None

    @property
    def top1(self) -> float | None:
        """Accuracy on the test split of its own data set, in percent."""
        accuracy = self.metrics.get("test_accuracy")
        return None if accuracy is None else 100 * accuracy

    @property
    def url(self) -> str:
        """The path or URL of the weights."""
        return f"{self.folder}/{self.weights}"

    def to_json(self) -> str:
        """Returns the text of its `model.json`."""
        return json.dumps(_document(self), indent=2, ensure_ascii=False) + "\n"


def is_name(text: str) -> bool:
    """Returns whether a text can be the name of a published model.

    Example:
        >>> [zoo.registry.is_name(name) for name in ("flowers-vit-ti16", "../flowers")]
        [True, False]
    """
    is_text = isinstance(text, str) and text.lower() not in _RESERVED
    return is_text and _NAME.fullmatch(text) is not None


def read(folder: str | os.PathLike) -> PublishedModel:
    """Returns the card of the published model in a folder.

    Args:
        folder: path of the folder of the model.

    Raises:
        CatalogError: it holds no published model, or its card is damaged.

    Example:
        >>> zoo.registry.read("registry/flowers-vit-ti16")  # doctest: +SKIP
    """
    folder = str(expand_home(folder, "folder"))
    card = os.path.join(folder, CARD)
    try:
        document = json.loads(regular_files.read_bytes(card, limits.REGISTRY_BYTES))
    except (OSError, *MALFORMED) as error:
        raise CatalogError(
            f"{folder} holds no published model: {card} cannot be read ({error})."
        ) from error
    return _model(document, folder, card)


def of_folder(folder: pathlib.Path) -> PublishedModel | None:
    """Returns the card of the published model in a folder, None without a whole one."""
    with contextlib.suppress(CatalogError):
        return read(folder) if (folder / CARD).exists() else None
    return None


def models() -> dict[str, PublishedModel]:
    """Returns the models of all registries by name.

    Raises:
        CatalogError: a registry, or a card in it, is damaged.
        StoreError: a registry is not available.

    Example:
        >>> zoo.registry.models()  # doctest: +SKIP
        {'flowers-vit-ti16': PublishedModel(...)}
    """
    published: dict[str, PublishedModel] = {}
    places = [place.strip() for place in os.environ.get(VARIABLE, "").split(",")]
    for place in filter(None, places):
        is_url = place.startswith(("http://", "https://"))
        for model in _served(place.rstrip("/")) if is_url else _local(place):
            published.setdefault(model.name, model)
    return published


def write_index(folder: str | os.PathLike) -> None:
    """Writes the index of a local registry from the cards in it.

    Args:
        folder: path of the registry.

    Raises:
        CatalogError: the card of a model is damaged.
        OSError: the index cannot be written.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     zoo.registry.write_index(folder)
        ...     print(os.listdir(folder))
        ['registry.json']
    """
    folder = expand_home(folder, "folder")
    cards = [_document(model) for model in _local(folder)]
    text = json.dumps({"format": _FORMAT, "models": cards}, indent=1)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".index-") as beside:
        part = os.path.join(beside, INDEX)
        pathlib.Path(part).write_text(text + "\n", encoding="utf-8")
        os.replace(part, os.path.join(folder, INDEX))


def _require(holds, problem):
    if not holds:
        raise ValueError(problem)


def _is_count(value):
    return type(value) is int and 0 <= value < 2**63


def _is_metric(value):
    # Larger integers do not fit in a float.
    return isinstance(value, float) or isinstance(value, int) and abs(value) < 2**63


def _local(place):
    root = expand_home(place)
    if not root.is_dir():
        raise store.StoreError(
            f"There is no folder {place}: check {VARIABLE}, which names it; a URL "
            "begins with http:// or https://."
        )
    if (root / CARD).exists():
        raise CatalogError(
            f"{place} is a model, not a registry: set {VARIABLE} to the folder that it "
            "is in."
        )
    for card in sorted(root.glob(f"*/{CARD}")):
        if not is_name(card.parent.name):
            continue  # being written
        model = read(card.parent)
        if model.name != card.parent.name:
            raise CatalogError(
                f"{card.parent} holds a model called {model.name!r}: rename the folder."
            )
        yield model


def _served(base):
    url = f"{base}/{INDEX}"
    try:
        index = json.loads(store.latest(url, limits.REGISTRY_BYTES))
        if index["format"] != _FORMAT:
            raise ValueError(f"format {brief(index['format'])}")
        names = [document["name"] for document in index["models"]]
        if wrong := [name for name in names if not is_name(name)]:
            raise ValueError(f"{brief(wrong[0])} is not a valid name of a model")
        folders = [f"{base}/{urllib.parse.quote(name, safe='')}" for name in names]
    except store.StoreError as error:
        raise store.StoreError(
            f"The registry of {VARIABLE} cannot be read: {error}"
        ) from error
    except MALFORMED as error:
        raise CatalogError(
            f"{url} is not the index of a registry ({brief(error)}): check {VARIABLE}, "
            f"or have its owner publish again; offline, delete the copy "
            f"{store.latest_copy(url)}."
        ) from error
    for document, folder in zip(index["models"], folders, strict=True):
        yield _model(document, folder, url)


def _document(model):
    document = dataclasses.asdict(model)
    del document["folder"]
    return document


def _model(document, folder, source):
    try:
        fields = {field.name for field in dataclasses.fields(PublishedModel)}
        if unknown := sorted(set(document) - (fields - {"folder"})):
            raise ValueError(f"unknown {', '.join(map(brief, unknown[:10]))}")
        return PublishedModel(**document, folder=folder)
    except MALFORMED as error:
        raise CatalogError(
            f"{source} holds a damaged card ({error}): publish the model again."
        ) from error
