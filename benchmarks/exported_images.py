"""The images that exports are compared on, and those that they are calibrated with."""

import csv
import pathlib

import numpy as np

# Of a photo at the network's usual size: the short side of what 224 is cut out of.
SHORT_SIDE, CROP = 256, 224
_EXTENSIONS = (".jpg", ".jpeg", ".png")


def labelled(folder, count=None):
    """Returns the photos of a folder and the places of their classes in the logits.

    Args:
        folder: path of a folder with `labels.csv`, of the columns file and label.
        count: int, how many, spread evenly over the table; by default all.

    Returns:
        Tuple of a list of paths and a list of int.

    Raises:
        ValueError: there is no such table, or it cannot be read.
    """
    folder = pathlib.Path(folder)
    table = folder / "labels.csv"
    if not table.is_file():
        raise ValueError(
            f"--photos={folder}: there is no labels.csv in it, a table with the "
            "columns file and label."
        )
    try:
        with table.open(newline="", encoding="utf-8") as stream:
            rows = [
                (folder / row["file"], int(row["label"]))
                for row in csv.DictReader(stream)
            ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{table} is no table with the columns file and label ({error!r})."
        ) from error
    if not rows:
        raise ValueError(f"{table} has no photos.")
    chosen = [rows[place] for place in _spread(len(rows), count)]
    return [path for path, _ in chosen], [label for _, label in chosen]


def found(folder, count, without=()):
    """Returns photos to calibrate with.

    Args:
        folder: path of a folder with photos in it or below.
        count: int, how many, spread evenly.
        without: paths of the photos that are compared.

    Returns:
        List of paths.

    Raises:
        ValueError: there is none, or some are compared too.
    """
    paths = sorted(
        path.resolve()
        for path in pathlib.Path(folder).rglob("*")
        if path.suffix.lower() in _EXTENSIONS
    )
    if not paths:
        raise ValueError(
            f"--calibration={folder}: there are no photos in it or below, of "
            f"{', '.join(_EXTENSIONS)}."
        )
    shared = {pathlib.Path(path).resolve() for path in without}.intersection(paths)
    if shared:
        raise ValueError(
            f"--calibration={folder}: {len(shared)} of its photos are compared too; "
            "name another folder."
        )
    return [paths[place] for place in _spread(len(paths), count)]


def read(paths, size):
    """Returns photos with their short side resized, and the centre cut out.

    The short side is 256 pixels where the square is of 224, and in proportion
    elsewhere; photos that have it already are not resized.

    Args:
        paths: list of paths.
        size: tuple of int, (height, width).

    Returns:
        uint8 array (photos, height, width, 3).

    Raises:
        ValueError: a photo cannot be read.
    """
    from PIL import Image

    height, width = size
    side = round(max(size) * SHORT_SIDE / CROP)
    images = np.empty((len(paths), height, width, 3), "uint8")
    for index, path in enumerate(paths):
        try:
            with Image.open(path) as file:
                photo = file.convert("RGB")
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error}.") from error
        scale = side / min(photo.size)
        if scale != 1:
            sides = [round(length * scale) for length in photo.size]
            photo = photo.resize(sides, Image.Resampling.BICUBIC)
        left, top = (photo.width - width) // 2, (photo.height - height) // 2
        images[index] = np.asarray(photo)[top : top + height, left : left + width]
    return images


def random(count, size, channels, seed):
    """Returns uint8 images of noise (count, height, width, channels)."""
    shape = (count, *size, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, "uint8")


def scaled(images):
    """Returns uint8 images as float32 in [-1, 1].

    Example:

    >>> scaled(np.uint8([0, 255]))
    array([-1.,  1.], dtype=float32)
    """
    return images.astype("float32") / np.float32(127.5) - np.float32(1)


def _spread(count, number):
    number = count if number is None else min(number, count)
    return np.linspace(0, count - 1, number).astype(int).tolist()
