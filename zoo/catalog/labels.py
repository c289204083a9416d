"""The names of the classes that the released heads tell apart, in their order."""

from __future__ import annotations

import json

from zoo.catalog import LABEL_FILES, CatalogError
from zoo.files.description import MALFORMED
from zoo.store import StoreError, fetch
from zoo.text import is_safe

_CLASSES = {"imagenet2012": 1000, "imagenet21k": 21843}
# Of a list, which has one.
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
        StoreError: the list cannot be fetched, or is not a list of as many classes.

    Example:
        >>> import zoo
        >>> zoo.class_names("imagenet2012")[0]  # doctest: +SKIP
        ('n01440764', 'tench')
    """
    if data_set not in _CLASSES:
        raise CatalogError(
            f"No class names are known for {data_set!r}: choose from "
            f"{', '.join(_CLASSES)}."
        )
    if data_set == "imagenet2012":
        urls = [LABEL_FILES[data_set]]
    else:
        urls = [LABEL_FILES[f"{data_set}_{part}"] for part in ("ids", "lemmas")]
    paths = [fetch(url, most_bytes=_MOST_BYTES) for url in urls]
    try:
        texts = [path.read_text(encoding="utf-8") for path in paths]
        if data_set == "imagenet2012":
            table = json.loads(texts[0])
            names = [tuple(table[str(index)]) for index in range(len(table))]
        else:
            ids, lemmas = (text.splitlines() for text in texts)
            names = list(zip(ids, lemmas, strict=True))
        wrong = any(
            len(name) != 2 or name[0][:1] != "n" or not all(map(is_safe, name))
            for name in names
        )
    except MALFORMED as error:
        raise _not_names(paths, data_set) from error
    if wrong or len(names) != _CLASSES[data_set]:
        raise _not_names(paths, data_set)
    return names


def _not_names(paths, data_set):
    files = " and ".join(map(str, paths))
    return StoreError(
        f"{files} should list the {_CLASSES[data_set]} classes of {data_set} but does "
        "not: delete it and try again."
    )
