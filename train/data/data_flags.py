"""Command-line flags of data sets and image preparation."""

import dataclasses
from collections.abc import Sequence

from absl import app, flags

from train.common.typed_flags import flags_in
from train.data import early_checks
from train.data.columns import NO_COLUMN, of_settings
from train.data.options import DataOptions
from train.data.registry import SOURCES
from train.tasks import seen
from zoo.common import limits

_COLUMNS = {
    "image": "files; one called path, image, file, filename or the like if not given",
    "label": "classes; one called label, class, category or the like if not given",
    "split": "split, train, test or validation; one called split, subset or partition "
    f"if not given; {NO_COLUMN} for none, when a fifth is held out for the test",
}
# Flags that say which data are read besides their name, and those that correct them.
_READ = ("data_dir", "bits", *(f"{role}_column" for role in _COLUMNS))
_CORRECTED = ("skip_corrupt", "without", "relabel")
# Flags belong to the command that defines them, in its --help too.
flags.disclaim_key_flags()


def define_data(otherwise: str = "", skip_corrupt: bool = True) -> None:
    """Defines `--dataset`, `--data_dir`, `--skip_corrupt`, the columns and `--bits`.

    `otherwise` says what holds without `--dataset`, and without the word for it, which
    `take_word` makes its value. Without `skip_corrupt` there is no such flag.
    """
    usage = ", ".join(kind.usage for kind in SOURCES[:-1])
    flags.DEFINE_string(
        "dataset",
        None,
        f"{usage}, or {SOURCES[-1].usage}{otherwise and '; '}{otherwise}.",
    )
    define_data_dir()
    if skip_corrupt:
        flags.DEFINE_boolean(
            "skip_corrupt",
            False,
            "Decode all images first, leave out those that cannot be read, and list "
            "them.",
        )
    for role, otherwise in _COLUMNS.items():
        flags.DEFINE_string(
            f"{role}_column",
            None,
            f"The column of a CSV file that has the {otherwise}.",
        )
    define_bits()


def define_data_dir() -> None:
    """Defines `--data_dir`, where TFDS has its data sets."""
    flags.DEFINE_string(
        "data_dir",
        None,
        "Folder of TFDS data sets, where they are or are downloaded to; TFDS's own "
        "default if not given.",
    )


def options() -> DataOptions:
    """Returns the `DataOptions` that the flags of a command give, as far as it has."""
    values = flags.FLAGS.flag_values_dict()
    names = {field.name for field in dataclasses.fields(DataOptions)} & values.keys()
    given = {name: values[name] for name in names}
    return DataOptions(columns=of_settings(values), **given)


def check(any_task: bool = False) -> None:
    """Refuses what the flags say of the data, before TensorFlow is loaded.

    With `any_task` the command takes data of the task that they show, else of classes.
    """
    dataset, read = flags.FLAGS.dataset, options()
    if any_task and dataset is not None:
        read = dataclasses.replace(read, task=seen(dataset, read.columns))
    early_checks.check(dataset, read)


def of_command(command: str, corrected: bool = True) -> list[str]:
    """Returns the flags of the data in a command, for another one on the same data.

    `corrected` says whether those that leave photos out or change labels are taken.

    Example:
        >>> of_command("keras-vit finetune a.csv --steps=9 --bits 12 --without=b.csv")
        ['--bits=12', '--without=b.csv']
        >>> of_command("")
        []
    """
    return flags_in(command, _READ + _CORRECTED * corrected)


def define_corrections() -> None:
    """Defines `--without` and `--relabel`, files that correct the data."""
    flags.DEFINE_multi_string(
        "without",
        None,
        "File of photos to leave out: a CSV file with a column path, or the JSON of "
        "keras-vit check, of whose copies the first photos stay.",
    )
    flags.DEFINE_multi_string(
        "relabel",
        None,
        "File of labels of photos: a CSV file path,label, or the JSON of keras-vit "
        "check, whose label errors get the labels suggested. Photos that the data do "
        "not have are added to those to train on.",
    )


def define_bits() -> None:
    """Defines `--bits`, how many bits the values of photos have."""
    flags.DEFINE_integer(
        "bits",
        None,
        "Bits of the values in PNG and TIFF files of 16 bits, 12 of many cameras; if "
        "not given, what a file's sBIT chunk says, else those that the model was "
        "trained with, which its run, file, export and published model carry, else 16.",
        lower_bound=8,
        upper_bound=16,
    )


def take_word(words: Sequence[str]) -> None:
    """Sets `--dataset` to the word of a command line that is not a flag, if any.

    Raises an `app.UsageError` where there are several, or another `--dataset` is given.
    """
    flag = flags.FLAGS["dataset"]
    named = list(dict.fromkeys([*words, *([flag.value] if flag.present else [])]))
    if len(named) > 1:
        raise app.UsageError(f"Give one data set, not {' and '.join(map(repr, named))}")
    if "" in named:
        raise app.UsageError("The name of the data set is empty: give a folder or name")
    if words:
        flags.FLAGS.dataset = named[0]


def define_image_size(crops: bool = True) -> None:
    """Defines `--image_size` and `--central_crop`, for a trained model."""
    flags.DEFINE_integer(
        "image_size",
        None,
        "Pixels per side, to which the position embeddings are resized; that of the "
        "model if not given.",
        lower_bound=1,
        upper_bound=limits.IMAGE_SIDE,
    )
    if crops:
        flags.DEFINE_bool(
            "central_crop",
            None,
            "Keep the aspect of the images and cut out 7/8 of the shorter side, as "
            "big_vision does; --nocentral_crop squashes them, as the released code "
            "does. If neither is given, what the model's settings say, else squashed.",
        )


def define_batch_size(default: int, text: str) -> None:
    """Defines `--batch_size`, how many images are computed at a time."""
    flags.DEFINE_integer(
        "batch_size", default, text, lower_bound=1, upper_bound=limits.BATCH_SIZE
    )
