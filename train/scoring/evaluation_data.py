"""The split of a data set that a loaded model is evaluated on."""

import os
import pathlib
from dataclasses import replace

from keras_vit.structure import (
    gives_features,
    head_activation,
    last_layer,
    problem_type_of,
)
from train import recipes
from train.common.errors import RunError
from train.common.files import make_folder, read_json
from train.data import early_checks, registry, sources
from train.data.columns import USUAL, Columns, of_settings
from train.data.options import DEFAULTS, DataOptions
from train.data.sources.splits import Source, Split
from train.models.loaded_model import LoadedModel
from train.models.run_directory import RunDirectory
from train.tasks import MASKS, of_problem_type
from zoo.common.regular_files import expand_home


def load_split(
    loaded: LoadedModel,
    dataset: str | None,
    split: str,
    options: DataOptions = DEFAULTS,
) -> tuple[Source, Split]:
    """Returns a data set and a split of it by name, divided as the model's run did it.

    If `dataset` is None, it is the run's. The split "all" is the whole data set, which
    then need not have parts. The run's data are read by its options where none are
    given, see `as_its_run`.
    """
    own = loaded.config.get("dataset")
    if dataset is None and own is None:
        raise RunError(
            f"The model {loaded.name} is not a run's, which would have a data set of "
            "its own: pass --dataset."
        )
    fraction = 0.0
    dataset = dataset or own
    options = as_its_run(options, loaded, dataset)
    options = replace(options, task=task_of(loaded))
    early_checks.check_task(dataset, options)
    if split == "all":
        fraction = None
    elif is_of_run(loaded, dataset, options.columns):
        fraction = loaded.config["validation_fraction"]
    elif split != "test":
        fraction = recipes.for_dataset(dataset).validation_fraction
    source = sources.load(dataset, options, validation_fraction=fraction)
    part = getattr(source, split)
    if part is None:
        raise RunError(
            f"Nothing of {dataset} was held out for validation: pass --split=test or "
            "--split=train."
        )
    return source, part


def task_of(loaded: LoadedModel) -> str:
    """Returns the name of the task in `train.tasks.TASKS` that a model is for."""
    # Models with a Sequential in them may have no output of their own.
    if isinstance(getattr(loaded.model, "output", None), dict):
        return MASKS
    if len(loaded.model.output_shape) == 4:
        return MASKS
    return of_problem_type(problem_type_of(loaded.model))


def as_its_run(options: DataOptions, loaded: LoadedModel, dataset: str) -> DataOptions:
    """Returns options with the columns and corrections of the model's run.

    They stay as they are for other data, and where they have their own.
    """
    if not is_of_run(loaded, dataset):
        return options
    if options.columns == USUAL:
        options = replace(options, columns=of_settings(loaded.config))
    options = replace(options, ignore=loaded.config.get("ignore"))
    file = RunDirectory(loaded.source).corrections
    if file.exists() and not (options.without or options.relabel):
        options = replace(options, without=file, relabel=file)
    return options


def is_of_run(loaded: LoadedModel, dataset: str, columns: Columns = USUAL) -> bool:
    """Returns whether a data set is the one that the model's run was trained on.

    If columns are given, they too must be the run's.
    """
    own = loaded.config.get("dataset")
    if own is None or not registry.is_same(dataset, own):
        return False
    return columns in (USUAL, of_settings(loaded.config))


def described(source: Source, part: Split, split: str) -> str:
    """Returns which images of a data set a split has, such as "all 600 images of x"."""
    if split == "all":
        return f"all {part.num_examples:,} images of {source.name}"
    name = "training" if split == "train" else split
    return (
        f"the {name} part, {part.num_examples:,} of {source.total:,} images of "
        f"{source.name}"
    )


def report_folder(
    source: str | os.PathLike,
    out_dir: str | os.PathLike | None,
    name: str,
    record: str,
    data: str | None = None,
) -> tuple[pathlib.Path, str]:
    """Returns the folder of a report, which is made, and the model's path or name.

    By default it is in runs/evaluations, where the report of another model or data set
    of the same name stays: the JSON file `record` in it has the `source` and the
    `data`, a name or an absolute path.
    """
    path = expand_home(source)
    source = str(path.resolve() if path.exists() else source)
    default = pathlib.Path("runs/evaluations") / name
    folder = make_folder(default if out_dir is None else out_dir, "--out_dir")
    if out_dir is None and (folder / record).exists():
        earlier = read_json(folder / record, "remove it, or pass --out_dir")
        other = str(earlier.get("source", source))
        # A project that was moved has its models where they were in it.
        place = os.sep + source.removeprefix(os.getcwd() + os.sep)
        moved = other.endswith(place) and not os.path.exists(other)
        if other != source and not moved:
            raise RunError(
                f"{folder} holds the report of another model, {other}: pass --out_dir, "
                "or remove it."
            )
        if data is not None and earlier.get("data", data) != data:
            raise RunError(
                f"{folder} holds the report of another data set, {earlier['data']}: "
                "pass --out_dir, or remove it."
            )
    return folder, source


def num_logits(loaded: LoadedModel) -> int:
    """Returns the number of classes; refuses models that give no logits."""
    shape = loaded.model.output_shape
    if len(shape) != 2:
        raise RunError(
            f"The model {loaded.name} has outputs of shape {shape[1:]}: give one that "
            "ends in a head for classes."
        )
    if gives_features(last_layer(loaded.model)):
        raise RunError(
            f"The model {loaded.name} has no head for classes, only features: "
            "fine-tune it, or evaluate its features by keras-vit few_shot."
        )
    activation = head_activation(loaded.model)
    if activation not in (None, "linear"):
        raise RunError(
            f"The model {loaded.name} ends in {activation}, where logits are "
            "needed: save it with classifier_activation=None."
        )
    return shape[1]
