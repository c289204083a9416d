"""Which of the evaluated images a model was trained on, and whether they changed."""

import pathlib

import numpy as np

from train.common.errors import RunError
from train.data import run_data, sources
from train.data.options import DataOptions
from train.data.photo_names import relative
from train.data.registry import kind_of
from train.data.sources.splits import Source, Split
from train.models.loaded_model import LoadedModel
from train.models.run_directory import RunDirectory
from train.scoring.evaluation_data import as_its_run, is_of_run
from train.scoring.metrics import share
from zoo.common.safe_text import named


def in_training(
    loaded: LoadedModel,
    source: Source,
    part: Split,
    split: str,
    data_options: DataOptions,
) -> tuple[np.ndarray | int | str | None, list[str]]:
    """Returns which images of a part the model's run was trained on, and warnings.

    The images are bools (examples,), their number, int, None where no image is known to
    be one, or why they are not known, a str. The warnings, a list of str, name copies
    of images of the training, and say whether the data of the run have changed. `part`
    is the `Split` of the source that is called `split`, as the run divided it if it is
    the run's data set.
    """
    own = loaded.config.get("dataset")
    is_same = is_of_run(loaded, source.name, data_options.columns)
    are_files = kind_of(source.name).is_own
    if not is_same and not (own and kind_of(own).is_own and are_files):
        return None, []
    try:
        divided = _divided_by_run(loaded, source, data_options.data_dir, is_same)
    except RunError as error:
        return f"Which of the images the model was trained on is not known: {error}", []
    is_trained = split in ("all", "train")
    most = loaded.config.get("train_examples") or divided.train.num_examples
    if not are_files:
        count = min(most, divided.train.num_examples)
        return count if is_trained else None, []
    limited = run_data.limit(divided, most, loaded.config.get("test_examples"))
    mask, warnings = _seen(part, limited.train, source.name)
    if not is_same:
        return mask, warnings
    if mask is None and is_trained:
        mask = limited.train.num_examples
    # The training left out damaged images; they are known only if left out here too.
    if RunDirectory(loaded.source).skipped.exists() and not (
        data_options.skip_corrupt and divided is source
    ):
        return mask, warnings
    facts = run_data.facts_of(limited)
    return mask, warnings + _changes(loaded.source, source.name, facts)


def _seen(part, trained, dataset):
    """Returns which images are of the training, and a sentence that names copies."""
    found = run_data.seen(part, trained)
    if found is None:
        return None, []
    mask, is_copy = found
    places = np.flatnonzero(is_copy)
    if not len(places):
        return mask, []
    names = named(relative([part.locate(place) for place in places], dataset))
    if len(places) == 1:
        told = f"One of these files is a copy of a training image: {names}."
    else:
        told = f"{len(places):,} of these files are copies of training images: {names}."
    return mask, [told]


def _divided_by_run(loaded, source, data_dir, is_same):
    """Returns the data of the model's run with its parts."""
    if is_same and source.all is None:
        return source
    dataset = source.name if is_same else loaded.config["dataset"]
    # Copies among photos, which stay on one side, are found by their bits.
    own = {name: loaded.config.get(name) for name in ("bits", "task")}
    options = DataOptions(data_dir, **own)
    return sources.load(
        dataset,
        as_its_run(options, loaded, dataset),
        validation_fraction=loaded.config["validation_fraction"],
        log=lambda line: None,
    )


def _changes(model, name, facts):
    """Returns a warning if the data are not those of the run's directory."""
    differences = RunDirectory(model).changed_data(facts)
    if not differences:
        return []
    # Hashes of the names of files, and long lists, say nothing to a person.
    shown = [text for text in differences if len(text) < 100 and "files of" not in text]
    if any("files of" in text for text in differences):
        shown.append("the names of the files")
    changed = ", ".join(shown or ["the classes"])
    return [
        f"Warning: {name} is not as it was when {pathlib.Path(model).name} was "
        f"trained on it ({changed}): the test part may have images of the training."
    ]


def accuracies(
    mask: np.ndarray | int | str | None, hits: np.ndarray, split: str
) -> tuple[str | None, dict]:
    """Returns a note about images of the training, and results, a dict.

    `mask` is what `in_training` returns, `hits` are bools (examples,), the correct
    answers.
    """
    if isinstance(mask, str):
        return mask, {}
    if mask is None or not np.any(mask):
        return None, {}
    count = int(np.sum(mask))
    results: dict[str, float] = {f"{split}_examples_in_training": count}
    if count == len(hits):
        return "The model was trained on all of these images.", results
    note = f"The model was trained on {count:,} of these {len(hits):,} images."
    if isinstance(mask, int):
        return note, results
    for name, chosen in (("in_training", mask), ("not_in_training", ~mask)):
        results |= share(f"{split}_accuracy_{name}", hits[chosen])
    on, off = (hits[chosen].mean() for chosen in (mask, ~mask))
    return f"{note} Its accuracy is {on:.2%} on them, {off:.2%} on the others.", results
