"""Data sources and augmentations: everything that names them reads these tables.

Importing this module imports no TensorFlow, so that `--help` stays quick.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

from train.common.setting import AT_LEAST_0, FRACTION, each, setting
from zoo import photos
from zoo.common.regular_files import expand_home, open_regular

# The folder of TFDS data sets, None for its default.
DataDir = str | os.PathLike | None
PARTS = ("train", "validation", "test")
# Subfolders of these names are these parts.
PART_OF = {part: part for part in PARTS} | {"val": "validation"}
# The number of pixels of a mask that do not count.
IGNORED = 255
# A folder of masks has the table of their classes in one of these files.
MASK_TABLES = ("classes.csv", "mask_classes.csv")
# Archives of photos are known by these endings.
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
# Names range from `train.tfrecord` to `train-00000-of-00004.gz`.
_RECORDS = re.compile(
    r"(train|validation|test)(-.*)?(\.tfrecords?(-\d+-of-\d+)?|-\d+-of-\d+)(\.gz)?"
)
# So many masks are looked up to see whether they belong to photos.
_MASKS_TRIED = 10
# A PNG file has the type of its colours here: gray, or a palette.
_PNG_TYPE, _PNG_VALUES = 25, (b"\0", b"\3")
# A TFDS name may have one slash, before its configuration.
_PATH = re.compile(r"[.~/].*|.*/|.*/.*/.*")


@dataclasses.dataclass(frozen=True)
class SourceKind:
    """A kind of data source: the registration of one loader."""

    name: str
    # How to name such data, for the help of `--dataset`.
    usage: str
    # Returns whether a name means such data; asked after the kinds before.
    matches: Callable[[str], bool]
    # `module:function`; it makes a `Source`.
    loader: str
    # Packages that must be installed, by the names they are imported by.
    packages: tuple[str, ...] = ()
    # True if the data are the user's own files.
    is_own: bool = False
    # Names what is used of the data, in a note on what is not.
    used_files: str = ""
    # True if the data are a table, whose `Columns` its loader reads.
    has_columns: bool = False


def record_files(folder: Path, pattern: str = "*") -> dict:
    """Returns the sorted TFRecord files of a folder by the part that they belong to."""
    by_part = {}
    for path in sorted(folder.glob(pattern)):
        match = _RECORDS.fullmatch(path.name)
        if match and path.is_file():
            by_part.setdefault(match[1], []).append(path)
    return by_part


def is_archive(path: str) -> bool:
    """Returns whether a path has the ending of an archive of photos."""
    return path.lower().endswith(ARCHIVES)


def _is_folder(dataset):
    return expand_home(dataset).is_dir()


def _is_tfrecord(dataset):
    if _is_folder(dataset):
        folder = expand_home(dataset)
        return not (folder / "train").is_dir() and bool(record_files(folder))
    is_pattern = re.search(r"[*?[]", dataset)
    return bool(is_pattern and not re.search(r":[\d.*]+$", dataset))


def mask_folders(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Returns the folders of photos and of their masks of each part, or of "all".

    They are images/train and masks/train, or train/images and train/masks, or train and
    masks/train; or images and masks where there are no parts.
    """
    by_part = {}
    for name, part in PART_OF.items():
        places = [
            (folder / "images" / name, folder / "masks" / name),
            (folder / name / "images", folder / name / "masks"),
            (folder / name, folder / "masks" / name),
        ]
        for photo_folder, mask_folder in places:
            if photo_folder.is_dir() and mask_folder.is_dir():
                by_part.setdefault(part, (photo_folder, mask_folder))
    if not by_part and (folder / "images").is_dir() and (folder / "masks").is_dir():
        by_part["all"] = (folder / "images", folder / "masks")
    return by_part


def _has_masks(dataset):
    """Returns whether a folder has masks: two classes may be called so, too."""
    if not _is_folder(dataset):
        return False
    folder = expand_home(dataset)
    has_table = any((folder / name).is_file() for name in MASK_TABLES)
    return any(
        _are_paired(*folders, has_table) for folders in mask_folders(folder).values()
    )


def _are_paired(photo_folder, mask_folder, has_table):
    """Returns whether some of the first masks are named like photos, and are values."""
    endings = photos.endings()
    # The loader of folders refuses files that cannot be read.
    with contextlib.suppress(OSError):
        files = (one for one in mask_folder.iterdir() if one.suffix.lower() == ".png")
        for mask in itertools.islice(files, _MASKS_TRIED):
            if any((photo_folder / f"{mask.stem}{one}").is_file() for one in endings):
                with open_regular(mask) as file:
                    start = file.read(_PNG_TYPE + 1)
                return has_table or start[_PNG_TYPE:] in _PNG_VALUES
    return False


SOURCES = (
    SourceKind(
        "digits",
        "digits",
        lambda dataset: dataset == "digits",
        "train.data.sources.digits_source:load_digits",
        packages=("sklearn",),
    ),
    SourceKind(
        "vtab",
        "vtab/TASK or vtab-full/TASK",
        lambda dataset: re.fullmatch(r"vtab(-full)?/.*", dataset) is not None,
        "train.data.sources.vtab:load_vtab",
        packages=("tensorflow_datasets",),
    ),
    SourceKind(
        "csv",
        "a CSV file path,label or path,label,split",
        lambda dataset: dataset.lower().endswith(".csv") and not _is_folder(dataset),
        "train.data.sources.csv_source:load_csv",
        is_own=True,
        used_files="rows with a label",
        has_columns=True,
    ),
    SourceKind(
        "archive",
        "a .zip or .tar of such folders",
        lambda dataset: is_archive(dataset) and not _is_folder(dataset),
        "train.data.sources.archive_source:load_archive",
        is_own=True,
        used_files="images in class folders",
    ),
    SourceKind(
        "tfrecord",
        "TFRecord files",
        _is_tfrecord,
        "train.data.sources.tfrecord_source:load_tfrecord",
        is_own=True,
        used_files="TFRecord files of train, validation or test by their names",
    ),
    SourceKind(
        "masks",
        "a folder images/{train,test}/*.jpg with masks/{train,test}/*.png",
        _has_masks,
        "train.masks.source:load_masks",
        is_own=True,
        used_files="photos with a mask",
    ),
    SourceKind(
        "folder",
        "a folder class/*.jpg or {train,test}/class/*.jpg",
        lambda dataset: _is_folder(dataset) or bool(_PATH.fullmatch(dataset)),
        "train.data.sources.folder_source:load_folder",
        is_own=True,
        used_files="images in class folders",
    ),
    SourceKind(
        "tfds",
        "a TFDS name such as cifar100",
        lambda dataset: True,
        "train.data.sources.tfds_source:load_tfds",
        packages=("tensorflow_datasets",),
    ),
)


def kind_of(dataset: str) -> SourceKind:
    """Returns the first kind in `SOURCES` that a name matches, without opening it."""
    return next(kind for kind in SOURCES if kind.matches(dataset))


def is_same(one: str, other: str) -> bool:
    """Returns whether two names mean one data set, however its path is written."""
    return one == other or real_path(one) == real_path(other)


def short_name(dataset: str, endings: bool = False) -> str:
    """Returns the name of a data set without its folder and version.

    With `endings` files keep theirs, as `flowers.csv`.
    """
    if kind_of(dataset).name == "vtab":
        return dataset.replace("/", "-")
    name = Path(dataset.partition(":")[0]).name
    for ending in () if endings else (".csv", *ARCHIVES):
        name = name.removesuffix(ending)
    return re.sub(r"[^\w.+-]+", "_", name)


def real_path(dataset: str) -> str:
    """Returns the absolute path of a data set in files, of others the name."""
    if not kind_of(dataset).is_own:
        return dataset
    path = os.path.abspath(os.path.expanduser(dataset))
    if os.path.isdir(path):
        return os.path.realpath(path)
    # Paths in a CSV file are relative to its folder, even if the file is a link.
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


@dataclasses.dataclass(frozen=True)
class Crop:
    """A crop of training images: the registration of its function."""

    # In `train.data.transforms.preprocessing`.
    function: str
    title: str


CROPS = {
    "inception": Crop(
        "inception_crop", "5 to 100% of its area, stretched by up to a third"
    ),
    "gentle": Crop("gentle_crop", "60 to 100% of its area, stretched by up to a third"),
    "resize": Crop("whole_image", "the whole image, as in testing"),
    "shift": Crop("random_shift", "the whole image, moved by up to an eighth"),
}


_augmentation = functools.partial(setting, group="Augmentation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Augmentations of training images, after the crop and the flip.

    The arguments are flags of `keras-vit finetune`. The metadata of each has its name
    in reports (`title`) and what `train.common.setting.setting` takes.

    Example:
        >>> Augmentation(rand_augment=(2, 15), mixup=0.2).mixes
        True
    """

    rand_augment: tuple[int, float] | None = _augmentation(
        None,
        "LAYERS,MAGNITUDE of RandAugment, such as 2,15; none turns it off.",
        ("None or two numbers", lambda values: len(values) == 2),
        each(AT_LEAST_0),
        title="RandAugment {} x {:g}",
        example="two numbers such as 2,15, or none",
    )
    random_erasing: float = _augmentation(
        0.0,
        "How often a part of an image is erased; 0 for never.",
        FRACTION,
        title="random erasing {:g}",
    )
    mixup: float = _augmentation(
        0.0,
        "The alpha of mixup, such as 0.2; 0 turns it off.",
        AT_LEAST_0,
        title="mixup {:g}",
        of_classifiers=True,
    )
    cutmix: float = _augmentation(
        0.0,
        "The alpha of CutMix, such as 1; 0 turns it off.",
        AT_LEAST_0,
        title="CutMix {:g}",
        of_classifiers=True,
    )

    @property
    def mixes(self) -> bool:
        """Whether examples are mixed, so that labels become rows of numbers."""
        return bool(self.mixup or self.cutmix)

    @property
    def augmentation_titles(self) -> list[str]:
        """The names and values of the augmentations that are on, for reports."""
        titles = []
        for field in dataclasses.fields(Augmentation):
            if value := getattr(self, field.name):
                values = value if isinstance(value, (tuple, list)) else (value,)
                titles.append(field.metadata["title"].format(*values))
        return titles
