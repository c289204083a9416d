"""Which mask belongs to which photo, in the folders of a data set."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from train.data.checking import DataError, entries, is_image
from train.data.columns import Columns
from train.data.registry import MASK_TABLES, PARTS, kind_of, mask_folders
from train.masks.reading import Pair
from train.tasks import MASKS
from zoo import photos
from zoo.common.safe_text import named, printable

LAYOUT = (
    "expected images/train/1.jpg with masks/train/1.png, and test (or val) like train"
)
_ENDING = ".png"


def find(folder: Path) -> tuple[dict[str, list[Pair]], list[Path]]:
    """Returns the pairs of photos and masks of each part, or of "all", and the rest.

    A photo and its mask have the same name but for the ending. The rest are files and
    folders that are not used, such as photos without a mask.

    Raises:
        DataError: masks without a photo, or photos of one name; where masks are no PNG
            or there are none.
    """
    parts, rest, places = {}, [], {folder}
    known = {folder / name for name in MASK_TABLES}
    for part, folders in mask_folders(folder).items():
        parts[part], unpaired = _pairs(*folders)
        rest += unpaired
        places.update(folders, (place.parent for place in folders))
        known.update(Path(file) for pair in parts[part] for file in pair)
    if parts.keys() & {*PARTS} and "train" not in parts:
        raise DataError(f"{folder} has no masks for train: {LAYOUT}")
    known.update(places, rest)
    listed = (Path(entry.path) for place in sorted(places) for entry in entries(place))
    rest += [path for path in listed if path not in known]
    return parts, rest


def _pairs(photo_folder, mask_folder):
    images = _by_stem(photo_folder, photos.endings())
    masks = _by_stem(mask_folder, (_ENDING,))
    if not masks:
        raise DataError(f"{mask_folder} has no PNG files: {LAYOUT}")
    if without := [path for stem, path in masks.items() if stem not in images]:
        lacking = [path for stem, path in images.items() if stem not in masks]
        also = (
            f"; photos without a mask are {named(_names(lacking))}" if lacking else ""
        )
        raise DataError(
            f"{len(without)} of the {len(masks):,} masks of {mask_folder} have no "
            f"photo of their name in {photo_folder}: {named(_names(without))}{also}; "
            "name each mask like its photo, or remove it"
        )
    others = _by_stem(mask_folder, tuple(set(photos.endings()) - {_ENDING}))
    if others := [path for stem, path in others.items() if stem not in masks]:
        raise DataError(
            f"{mask_folder} has masks that are no PNG: {named(_names(others))}; save "
            "them as PNG, other formats may change their values"
        )
    pairs = [Pair(str(images[stem]), str(path)) for stem, path in masks.items()]
    return pairs, [path for stem, path in images.items() if stem not in masks]


def _by_stem(folder, endings):
    """Returns the files of some endings in a folder by their names without these."""
    files: dict[str, Path] = {}
    for entry in entries(folder):
        if not is_image(entry, endings):
            continue
        path = Path(entry.path)
        # macOS has accents as characters of their own.
        stem = unicodedata.normalize("NFC", path.stem)
        if stem in files:
            raise DataError(
                f"{folder} has both {files[stem].name} and {path.name}: a mask belongs "
                "to one of them alone, so rename one"
            )
        files[stem] = path
    return files


def _names(paths: Sequence[Path]) -> list[str]:
    return [printable(path.name) for path in paths]


def is_seen(dataset: str, columns: Columns) -> bool:
    """Returns whether a data set is a folder of photos with masks."""
    return kind_of(dataset).name == MASKS
