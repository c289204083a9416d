"""Files of masks: their values, and what is wrong with them, before training."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train.data.checking import DataError
from train.data.registry import MASK_TABLES
from train.masks.classes import Colour, MaskClasses
from zoo import photos
from zoo.common import limits, regular_files
from zoo.common.safe_text import counted, named, printable
from zoo.photos import headers, png
from zoo.store.progress import progress_bar

# Fewer masks are checked without a progress bar.
_SHOWN_MASKS = 2_000
_OPAQUE = 255
# Each pair is read by a thread, and at most so many more wait.
_AHEAD = 16


class Pair(NamedTuple):
    """The files of a photo and of its mask."""

    photo: str
    mask: str


class Occurrence(NamedTuple):
    """Where a value occurs: pixels, masks, and the first of these."""

    pixels: int
    masks: int
    first: str


Occurrences = dict[int, Occurrence]


def read_mask(
    path: str | os.PathLike, colours: Mapping[Colour, int] | None = None
) -> np.ndarray:
    """Returns the values of a mask, a PNG file; of a palette they are its indices.

    Grays have 1 to 16 bits. A mask in colour has the values of its `colours`, such as
    `MaskClasses.colours`. It stands upright, as photos do.

    Returns:
        uint8 or uint16 array (height, width).

    Raises:
        DataError: the file is not a mask; the message says why, and what to do.

    Source: PNG specification, third edition, sections 11.2.1 and 11.2.2.

    Example:
        >>> from PIL import Image
        >>> Image.fromarray(np.array([[0, 7]], "uint8")).save("mask.png")
        >>> read_mask("mask.png")
        array([[0, 7]], dtype=uint8)
    """
    name = printable(os.fsdecode(path))
    try:
        with regular_files.open_regular(path, most=limits.PHOTO_BYTES) as file:
            encoded = file.read()
    except OSError as error:
        remedy = regular_files.remedy(error)
        raise DataError(
            f"{name} cannot be opened ({error.strerror or error}): {remedy}"
        ) from error
    if not encoded.startswith(png.START):
        raise DataError(
            f"{name} is not a PNG file: save masks as PNG, other formats may change "
            "their values"
        )
    try:
        values, _ = png.samples(encoded)
    except Exception as error:
        reason = str(error) if isinstance(error, ValueError) else type(error).__name__
        raise DataError(
            f"{name} cannot be read as a mask ({reason}): save it again as PNG with "
            "one value per pixel"
        ) from error
    return _of_one_channel(name, values, colours)


def _of_one_channel(name, values, colours):
    """Returns one value per pixel, of grays or colours with or without transparency."""
    if values.ndim == 3 and values.shape[-1] in (2, 4):
        if hidden := int((values[..., -1] != _OPAQUE).sum()):
            raise DataError(
                f"{name} has {counted(hidden, 'transparent pixel')} of no known class: "
                "save it without transparency, with a value for what does not count"
            )
        values = values[..., :-1]
    if values.ndim == 2 or values.shape[-1] == 1:
        return values.reshape(values.shape[:2])
    if not colours:
        raise DataError(
            f"{name} is in colour: save it as gray or with a palette, or add the "
            f"colours of classes as columns r,g,b of {MASK_TABLES[0]}"
        )
    return _of_colours(name, values, colours)


def _of_colours(name, pixels, colours):
    units = np.array([2**16, 2**8, 1], np.uint32)
    codes = pixels.astype(np.uint32) @ units
    values = np.array([*colours.values()], np.uint16)
    table = np.array([*colours], np.uint32) @ units
    order = np.argsort(table)
    values, table = values[order], table[order]
    places = np.searchsorted(table, codes)
    places[places == len(table)] = 0
    unknown = codes[table[places] != codes]
    if unknown.size:
        shown = [
            f"{code >> 16},{code >> 8 & 255},{code & 255} ({counted(count, 'pixel')})"
            for code, count in Counter(unknown.tolist()).most_common()
        ]
        raise DataError(
            f"{name} has colours that the table of classes lacks: {named(shown)}; add "
            "them to its columns r,g,b, or save the mask without blending its edges"
        )
    return values[places].astype("uint8" if values.max() < 256 else "uint16")


def survey(
    name: str,
    parts: Mapping[str, Sequence[Pair]],
    colours: Mapping[Colour, int] | None = None,
) -> dict[str, Occurrences]:
    """Reads all masks of a data set, and returns where each value occurs, by part.

    `colours` are as in `read_mask`. Of photos the headers are read, no pixels. Raises a
    `DataError` that names the masks that cannot be read, or have other sizes than
    their photos.
    """
    total = sum(map(len, parts.values()))
    found: dict[str, Occurrences] = {part: {} for part in parts}
    wrong: dict[str, str] = {}
    listed = ((part, pair) for part, pairs in parts.items() for pair in pairs)

    def read(item: tuple[str, Pair]) -> tuple | str:
        return _counts(item[1], colours)

    with progress_bar(
        total=total,
        unit="mask",
        desc=f"checking the masks of {name}",
        disable=total < _SHOWN_MASKS,
    ) as bar:
        for (part, pair), counts in photos.read_ahead(listed, read, _AHEAD):
            bar.update()
            if isinstance(counts, str):
                wrong[pair.mask] = counts
                continue
            for value, pixels in zip(*counts, strict=True):
                before = found[part].get(value, Occurrence(0, 0, pair.mask))
                found[part][value] = before._replace(
                    pixels=before.pixels + pixels, masks=before.masks + 1
                )
    if wrong:
        first, *others = wrong
        also = f"; others: {named(others)}" if others else ""
        raise DataError(
            f"{len(wrong)} of the {counted(total, 'mask')} of {name} cannot be used: "
            f"{wrong[first]}{also}"
        )
    return found


def _counts(pair, colours):
    """Returns the values of a mask and how many pixels have each, or what is wrong."""
    try:
        values = read_mask(pair.mask, colours)
    except DataError as error:
        return str(error)
    height, width = values.shape
    try:
        sides = headers.upright_size(pair.photo)
    except Exception:
        # The photo is refused by name where it is decoded.
        sides = height, width
    if sides != (height, width):
        turned = (
            "turn it like its photo"
            if sides == (width, height)
            else "save it in the size of its photo"
        )
        return (
            f"{printable(pair.mask)} has {width} x {height} pixels, and its photo "
            f"{printable(pair.photo)} {sides[1]} x {sides[0]}: {turned}"
        )
    pixels = np.bincount(values.ravel())
    occurring = np.flatnonzero(pixels)
    return occurring.tolist(), pixels[occurring].tolist()


def joined(parts: Mapping[str, Occurrences]) -> Occurrences:
    """Returns where each value occurs in all parts together."""
    whole: Occurrences = {}
    for found in parts.values():
        for value, one in found.items():
            before = whole.get(value, Occurrence(0, 0, one.first))
            whole[value] = Occurrence(
                before.pixels + one.pixels, before.masks + one.masks, before.first
            )
    return dict(sorted(whole.items()))


def check_values(name: str, found: Occurrences, classes: MaskClasses) -> None:
    """Refuses values of masks without a class, by a `DataError` with their counts."""
    unknown = [
        f"{value} ({counted(one.pixels, 'pixel')} of {counted(one.masks, 'mask')}, "
        f"first {printable(one.first)})"
        for value, one in found.items()
        if value not in classes.number_of
    ]
    if unknown:
        raise DataError(
            f"masks of {name} have values that {classes.place} lacks: "
            f"{named(unknown)}; add rows with their names, or pass ignore=VALUE"
        )


def notes(parts: Mapping[str, Occurrences], classes: MaskClasses) -> tuple[str, ...]:
    """Returns what to know of masks that is no error: classes that occur nowhere.

    A class that is not in the masks to train on is not learned.
    """
    trained_on = parts["train"] if "train" in parts else joined(parts)
    occurring = {classes.number_of[value] for value in trained_on}
    missing = [
        name for number, name in enumerate(classes.names) if number not in occurring
    ]
    if not missing:
        return ()
    are = "class occurs" if len(missing) == 1 else "classes occur"
    return (
        f"{len(missing)} of the {len(classes.names)} {are} in no mask to train on: "
        f"{named(missing)}",
    )
