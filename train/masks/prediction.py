"""Writes the masks of photos: PNG files, pictures of them, and the area of classes."""

import itertools
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

from keras_vit import structure
from train.common.errors import RunError
from train.common.files import make_folder, whole_file
from train.masks import drawing
from train.masks.segmenting import Segmenter
from train.models.finding import FoundModel, bits_of
from train.models.keras_files import load_model
from zoo import photos as zoo_photos
from zoo.common.regular_files import expand_home
from zoo.store.progress import progress_bar


def predict(
    model: FoundModel,
    photos: Iterable[str],
    out: str | pathlib.Path,
    *,
    slides: bool = False,
    bits: int | None = None,
) -> tuple[int, list[str]]:
    """Writes the masks of photos into a folder.

    Its folder masks has PNG files with a palette, overlays the photos with these
    colours; areas.csv the pixels of each class of each photo, and classes.csv what the
    values mean. Names that occur twice get a number.

    Args:
        model: what `train.models.finding.find` returns, a run.
        photos: the paths of the photos.
        out: the folder.
        slides: whether photos are covered by windows of the model's size, instead of
            being squashed to it.
        bits: of values in files of 16 bits, see `zoo.photos.decode`.

    Returns:
        How many photos were answered, and why others were not, a list of str.
    """
    folder = make_folder(expand_home(out), "--out")
    masks, overlays = (
        make_folder(folder / name, "--out") for name in ("masks", "overlays")
    )
    loaded = load_model(model.keras_file)
    bits, _ = bits_of(model.source, structure.bits_of(loaded), bits)
    segmenter = Segmenter(loaded)
    names = model.run.read_class_names()
    drawing.write_classes(folder / "classes.csv", names)
    refused: list[str] = []
    rows: list[drawing.Area] = []
    count = 0
    with progress_bar(unit="photo", desc="predicting masks") as bar:
        for path, stem in names_for(photos):
            try:
                photo = zoo_photos.decode(path, bits)
                numbers = segmenter(np.asarray(photo), slides)
            except (OSError, ValueError, MemoryError) as error:
                refused.append(f"{path}: {error}")
                continue
            drawing.write_class_map(masks / f"{stem}.png", numbers)
            _write_picture(overlays / f"{stem}.jpg", drawing.overlay(photo, numbers))
            rows += drawing.areas(path, numbers, names)
            count += 1
            bar.update()
    if not count and not refused:
        raise RunError("There is no photo: give files, folders or patterns.")
    drawing.write_areas(folder / "areas.csv", rows)
    return count, refused


def names_for(photos: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields paths with names of their own for files."""
    taken: set[str] = set()
    for path in photos:
        stem = pathlib.Path(path).stem
        numbered = (f"{stem}-{number}" for number in itertools.count(2))
        names = itertools.chain([stem], numbered)
        # Some disks take one name in two cases for one file.
        name = next(one for one in names if one.casefold() not in taken)
        taken.add(name.casefold())
        yield path, name


def _write_picture(path, pixels):
    from PIL import Image

    with whole_file(path, "--out") as temporary:
        Image.fromarray(pixels).save(temporary, format="JPEG", quality=90)
