"""Answers for every pixel: class maps of photos, as files, pictures and areas."""

import functools
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from train.common import tables
from train.common.files import whole_file
from train.data.registry import IGNORED
from zoo.photos import resizing

# Values of red, green and blue that the palette chooses from.
_LEVELS = np.array([0, 36, 73, 109, 146, 182, 219, 255])
# Numbers of the resized logits that are in memory at a time: 64 MB.
_MOST_NUMBERS = 2**24


@functools.cache
def palette() -> np.ndarray:
    """Returns the colours of class numbers, uint8 (256, 3), always the same.

    Each is as far as can be from those before it, and from black and white. Black is
    the colour of `IGNORED`.

    Source: T. Riemersma, Colour metric (www.compuphase.com/cmetric.htm), the distance.

    Example:
        >>> palette()[:2].tolist(), palette()[255].tolist()
        ([[0, 255, 36], [219, 0, 255]], [0, 0, 0])
    """
    colours = np.stack(np.meshgrid(*[_LEVELS] * 3, indexing="ij"), -1).reshape(-1, 3)
    black, white = colours[0], colours[-1]
    nearest = np.minimum(_distance(colours, black), _distance(colours, white))
    chosen = []
    for _ in range(IGNORED):
        chosen.append(colours[nearest.argmax()])
        nearest = np.minimum(nearest, _distance(colours, chosen[-1]))
    return np.array([*chosen, black], np.uint8)


def _distance(colours, one):
    # Integers, so that every machine chooses the same colours.
    red, green, blue = np.moveaxis((colours - one) ** 2, -1, 0)
    mean = (colours[:, 0] + one[0]) // 2
    return ((512 + mean) * red >> 8) + 4 * green + ((767 - mean) * blue >> 8)


def class_map(scores: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns the class of every pixel of a photo, by the scores of a coarser grid.

    Scores are brought to the photo's size before the largest is chosen, which makes
    smoother edges than the reverse: bilinear between half-pixel centres.

    Args:
        scores: floats (height, width, classes), such as logits.
        size: (height, width) of the photo.

    Returns:
        uint8 array of `size`.

    Source: Segmenter: Transformer for Semantic Segmentation, section 3.2.

    Example:
        >>> class_map(np.eye(2)[None], (1, 6))
        array([[0, 0, 0, 1, 1, 1]], dtype=uint8)
    """
    height, width = size
    classes = scores.shape[2]
    if classes > IGNORED:
        raise ValueError(f"a class map has at most {IGNORED} classes, got {classes:,}")
    top, bottom, down = resizing.places(scores.shape[0], height)
    answer = np.empty(size, np.uint8)
    # Resized as a whole, 150 classes of a photo of 12 megapixels would have 7 GB.
    rows = max(1, _MOST_NUMBERS // (width * classes))
    for start in range(0, height, rows):
        strip = slice(start, start + rows)
        first, last = top[strip][0], bottom[strip][-1] + 1
        lines = resizing.resize(scores[first:last], (last - first, width))
        upper, lower = lines[top[strip] - first], lines[bottom[strip] - first]
        upper += (lower - upper) * down[strip, None, None]
        answer[strip] = upper.argmax(axis=-1)
    return answer


def write_class_map(path: str | os.PathLike, numbers: np.ndarray) -> None:
    """Writes class numbers (height, width) of 0 to 255 as a PNG with the `palette`.

    `train.masks.reading.read_mask` and Pillow read the same numbers.
    """
    from PIL import Image

    image = Image.fromarray(np.asarray(numbers, np.uint8))
    image.putpalette(palette().tobytes())
    with whole_file(path, "--out") as temporary:
        image.save(temporary, format="PNG", optimize=True)


def write_classes(path: str | os.PathLike, names: Sequence[str]) -> None:
    """Writes the table of class maps: value, name, and the colour of the palette.

    As classes.csv, it makes a folder of maps one that `--dataset` takes.
    """
    colours = palette().tolist()
    rows = ((n, name, *colours[n]) for n, name in enumerate(names))
    tables.write(path, ("value", "name", "r", "g", "b"), rows, "--out")


def overlay(photo: np.ndarray, numbers: np.ndarray, opacity: float = 0.5) -> np.ndarray:
    """Returns a photo with the colours of its class map over it.

    Args:
        photo: uint8 array (height, width, 3).
        numbers: class numbers (height, width); where they are `IGNORED`, the photo is
            as it was.
        opacity: 0, which leaves the photo, to 1, which leaves the colours.

    Returns:
        uint8 array (height, width, 3).

    Example:
        >>> photo = np.full((1, 2, 3), 100, "uint8")
        >>> overlay(photo, np.array([[1, 255]]), opacity=0.2).tolist()
        [[[124, 80, 131], [100, 100, 100]]]
    """
    if photo.shape[:2] != numbers.shape:
        raise ValueError(
            f"a class map has the size of its photo, {photo.shape[:2]}, got "
            f"{numbers.shape}: make it with class_map"
        )
    mixed = photo + np.float32(opacity) * (palette()[numbers] - photo.astype("float32"))
    counted = (numbers != IGNORED)[..., None]
    return np.where(counted, np.rint(mixed).astype(np.uint8), photo)


class Area(NamedTuple):
    """The part of a photo that a class takes: a row of a table of areas."""

    file: str
    label: str
    pixels: int
    share: float


def areas(file: str, numbers: np.ndarray, names: Sequence[str]) -> list[Area]:
    """Returns the area of each class that a class map has, in the order of `names`.

    Shares are those of all pixels of the photo, `IGNORED` ones too.

    Example:
        >>> areas("1.jpg", np.array([[1, 1, 0, 1]]), ["road", "car"])[1]
        Area(file='1.jpg', label='car', pixels=3, share=0.75)
    """
    counts = np.bincount(numbers.ravel(), minlength=IGNORED + 1)[: len(names)]
    return [
        Area(file, name, int(count), float(count / numbers.size))
        for name, count in zip(names, counts, strict=True)
        if count
    ]


def write_areas(path: str | os.PathLike, rows: Iterable[Area]) -> None:
    """Writes areas as a CSV file with the columns file, class, pixels and share."""
    cells = ((*row[:3], f"{row.share:.6f}") for row in rows)
    tables.write(path, ("file", "class", "pixels", "share"), cells, "--out")
