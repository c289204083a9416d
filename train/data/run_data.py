"""The data that a run was trained on: whether they have changed, what it has seen."""

import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from train.data import copies, registry
from train.data.sources import corrections
from train.data.sources.splits import Source, Split, pick
from train.data.sources.subset import limited


def limit(
    source: Source, train_examples: int | None, test_examples: int | None
) -> Source:
    """Returns a source cut down to the examples that a recipe asks for."""
    validation = source.validation
    return dataclasses.replace(
        source,
        train=limited(source.train, train_examples),
        validation=validation and limited(validation, test_examples),
        test=limited(source.test, test_examples),
    )


def facts_of(source: Source) -> dict:
    """Returns the facts of a limited source that the `data.json` of a run has.

    The user's own files also have their absolute path, and a hash of the names of each
    split's files; corrected data what was corrected.
    """
    facts = {
        "training images": source.train.num_examples,
        "validation images": source.validation.num_examples if source.validation else 0,
        "test images": source.test.num_examples,
        "classes": source.class_names,
    }
    if corrected := corrections.record(source):
        text = json.dumps(corrected).encode()
        facts["corrections"] = hashlib.sha256(text).hexdigest()[:16]
    if registry.kind_of(source.name).is_own:
        facts["path"] = registry.real_path(source.name)
    for part in ("train", "validation", "test"):
        if (paths := _files(getattr(source, part))) is not None:
            # A folder may be moved, and its classes stay with their files.
            names = ("/".join(pathlib.Path(path).parts[-2:]) for path in paths)
            text = "\n".join(names).encode("utf-8", "surrogateescape")
            facts[f"files of {part}"] = hashlib.sha256(text).hexdigest()[:16]
    return facts


def seen(split: Split, trained: Split) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns which images of a split a model was trained on, and which are copies.

    Both are bools (examples,); copies, which are among the first, are other files, see
    `train.data.copies.copied`. `trained` is the split that the model was trained on.
    None where the images are not files.
    """
    files, known = _files(split), _files(trained)
    if files is None or known is None:
        return None
    paths = set(map(os.path.realpath, known))
    is_known = np.array([os.path.realpath(path) in paths for path in files])
    is_copy = np.zeros(len(files), bool)
    others = np.flatnonzero(~is_known)
    if len(others):
        is_copy[others] = copies.copied(pick(split, others), trained)
    return is_known | is_copy, is_copy


def _files(split):
    """Returns the paths of a split's files, None where they are something else."""
    paths = split.arrays[0] if split and split.arrays else ()
    return paths if len(paths) and isinstance(paths[0], str) else None
