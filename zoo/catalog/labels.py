"""Class names of the released heads, in the order of their outputs."""

import json

from zoo.catalog.cards import CLASSES
from zoo.catalog.model_card import CatalogError
from zoo.files.description import MALFORMED
from zoo.store import StoreError, fetch
from zoo.text import is_safe

_WORDNET = "https://storage.googleapis.com/bit_models/imagenet21k_wordnet"
LABEL_FILES = {
    "imagenet2012": (
        "https://storage.googleapis.com/download.tensorflow.org/data/"
        "imagenet_class_index.json"
    ),
    "imagenet21k_ids": f"{_WORDNET}_ids.txt",
    "imagenet21k_lemmas": f"{_WORDNET}_lemmas.txt",
}
_DATA_SETS = ("imagenet2012", "imagenet21k")
_MOST_BYTES = 10**7


def class_names(data_set: str) -> list[tuple[str, str]]:
    """Returns the classes of a data set, downloading their list the first time.

    Args:
        data_set: `"imagenet2012"` (1000 classes, names as `keras.applications` has
            them) or `"imagenet21k"` (21843 classes, WordNet lemmas).

    Returns:
        A list of (WordNet id, name), in the order of the released heads.

    Raises:
        CatalogError: another data set.
        StoreError: the list is not available, or has other content.

    Example:
        >>> zoo.class_names("imagenet2012")[0]  # doctest: +SKIP
        ('n01440764', 'tench')
    """
    if data_set not in _DATA_SETS:
        raise CatalogError(
            f"No class names are known for {data_set!r}: choose from "
            f"{', '.join(_DATA_SETS)}."
        )
    urls = [LABEL_FILES[name] for name in LABEL_FILES if name.startswith(data_set)]
    paths = [fetch(url, most_bytes=_MOST_BYTES) for url in urls]
    try:
        texts = [path.read_text(encoding="utf-8") for path in paths]
        if data_set == "imagenet2012":
            table = json.loads(texts[0])
            names = [tuple(table[str(index)]) for index in range(len(table))]
        else:
            names = list(zip(*(text.splitlines() for text in texts), strict=True))
        if len(names) != CLASSES[data_set]:
            raise ValueError(f"it has {len(names)} lines")
        for name in names:
            if len(name) != 2 or name[0][:1] != "n" or not all(map(is_safe, name)):
                raise ValueError("it has other entries")
    except MALFORMED as error:
        files = " and ".join(map(str, paths))
        raise StoreError(
            f"{files} should list the {CLASSES[data_set]} classes of {data_set} but "
            "does not: delete it and try again."
        ) from error
    return names
