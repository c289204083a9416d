"""Class names of the released heads, in the order of their outputs.

Those of ImageNet-1k are in `imagenet2012.csv`: WordNet ids in the order of the heads,
and the names that `keras.applications` has for them, whose underscores become spaces in
all that is returned and shown. Two names, crane and maillot,
are of two classes each.
"""

import csv
import pathlib

from zoo.catalog.cards import CLASSES
from zoo.catalog.model_card import CatalogError
from zoo.common.regular_files import read_text
from zoo.common.safe_text import is_safe
from zoo.libraries.description import MALFORMED
from zoo.network.head import CLASS_LISTS
from zoo.store import StoreError, fetch

_WORDNET = "https://storage.googleapis.com/bit_models/imagenet21k_wordnet"
LABEL_FILES = {
    "imagenet21k_ids": f"{_WORDNET}_ids.txt",
    "imagenet21k_lemmas": f"{_WORDNET}_lemmas.txt",
}
_MOST_BYTES = 10**7


def class_names(data_set: str) -> list[tuple[str, str]]:
    """Returns the classes of a data set.

    Args:
        data_set: `"imagenet2012"` (1000 classes, names as `keras.applications` has
            them, but with spaces), whose list is in this package, or `"imagenet21k"`
            (21843 classes, WordNet lemmas), whose list is downloaded the first time.

    Returns:
        A list of (WordNet id, name), in the order of the released heads.

    Raises:
        CatalogError: another data set.
        StoreError: the list cannot be downloaded, or has other content.

    Example:
        >>> zoo.class_names("imagenet2012")[0]
        ('n01440764', 'tench')
    """
    if data_set not in CLASS_LISTS:
        raise CatalogError(
            f"No class names are known for {data_set!r}: choose from "
            f"{', '.join(CLASS_LISTS)}."
        )
    if data_set == "imagenet2012":
        path = pathlib.Path(__file__).with_name("imagenet2012.csv")
        with open(path, encoding="utf-8", newline="") as file:
            return _spaced(csv.reader(file))
    paths = [fetch(url, most_bytes=_MOST_BYTES) for url in LABEL_FILES.values()]
    try:
        lines = [read_text(path, _MOST_BYTES).splitlines() for path in paths]
        names = list(zip(*lines, strict=True))
        if len(names) != CLASSES[data_set]:
            raise ValueError(f"it has {len(names)} lines")
        for name in names:
            if name[0][:1] != "n" or not all(map(is_safe, name)):
                raise ValueError("it has other entries")
    except MALFORMED as error:
        files = " and ".join(map(str, paths))
        raise StoreError(
            f"{files} should list the {CLASSES[data_set]} classes of {data_set} but "
            "does not: delete it and try again."
        ) from error
    return _spaced(names)


def texts_of(names: tuple[str, ...] | str | None) -> tuple[str, ...] | None:
    """Returns the names of classes that `zoo.network.head.Head.class_names` says.

    Raises a `StoreError` where they are those of a list that cannot be downloaded.

    Example:
        >>> texts_of("imagenet2012")[0]
        'tench'
    """
    if not isinstance(names, str):
        return names
    return tuple(name for _, name in class_names(names))


def _spaced(names):
    return [(wordnet_id, name.replace("_", " ")) for wordnet_id, name in names]
