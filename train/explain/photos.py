"""Photos as a model takes them and as the report shows them."""

import dataclasses
import os
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

import zoo.photos
from train.data.checking import DataError, check_paths, heic_remedy
from train.data.sources.corrupt import find_corrupt
from train.data.sources.folder_source import file_split
from train.data.sources.splits import check_name
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import named, printable
from zoo.network.preparation import shows_all

# The longer side of a photo in the report, in pixels.
LONGER_SIDE = 640


@dataclasses.dataclass(frozen=True)
class Photo:
    """A photo as a model takes it and as the report shows it.

    `number` counts the photos that are shown, from 1, `place` all photos. `image` is
    float32 (1, height, width, channels) in [-1, 1], `picture` uint8 (height, width, 3),
    made smaller or cropped.
    """

    number: int
    place: int
    name: str
    image: np.ndarray
    picture: np.ndarray

    @property
    def file_name(self) -> str:
        """The prefix of the names of its figures."""
        stem = re.sub(r"[^\w.+-]+", "-", pathlib.PurePath(self.name).stem)
        return f"{self.number:02}-{stem[:60].strip('-')}"


class Photos:
    """Image files, each once, prepared as `keras_vit.classify` does.

    A folder gives all images in it and below, sorted, except hidden files and images in
    the folder `without`, such as an earlier report's, unless they are named themselves.
    `ignored` has the names of the other files in the folders, `names` the paths of the
    photos from the folder that all have in common.

    Raises a DataError where a path does not exist, a folder has no images, a file
    cannot be decoded, or its name has line breaks or is not UTF-8.
    """

    def __init__(self, paths, without=None):
        by_place, ignored = {}, []
        check_paths(paths)
        for path in paths:
            path = expand_home(path)
            files = _images_in(path, without, ignored) if path.is_dir() else [path]
            for file in files:
                check_name(str(file), str(file))
                by_place.setdefault(file.resolve(), file)
        self.paths = tuple(by_place.values())
        self.ignored = tuple(printable(str(path)) for path in ignored)
        places = [pathlib.Path(os.path.abspath(path)) for path in self.paths]
        common = os.path.commonpath([place.parent for place in places])
        self.names = tuple(place.relative_to(common).as_posix() for place in places)
        files = [str(path) for path in self.paths]
        self._split = file_split("the photos", files, np.zeros(len(files)))
        with warnings.catch_warnings():
            # The model may state the bits; if not, the warning comes again later.
            warnings.filterwarnings("ignore", ".* nearly black")
            corrupt = find_corrupt(self._split)
        if corrupt:
            raise DataError(
                f"{named(corrupt)} cannot be read as "
                f"{'images' if len(corrupt) > 1 else 'an image'}: damaged, cut off or "
                "of another kind; save as RGB JPEG or PNG, or leave out"
            )

    def __len__(self):
        return len(self.paths)

    def prepare_for(self, shape: tuple, preparation: str, bits: int | None) -> None:
        """Sets (height, width, channels) of images, and how photos come to that size.

        `preparation` and `bits` are those of `zoo.photos.prepare`.
        """
        self.shape, self._preparation = shape, preparation
        self._split = dataclasses.replace(self._split, bits=bits)

    def batches(
        self, batch_size: int, places: Sequence[int] | np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Yields float32 (photos, height, width, channels) in [-1, 1], by default all.

        `places` are those of some photos; they ascend. Raises a DataError where values
        have more bits.
        """
        *size, channels = self.shape
        how = tuple(size), self._preparation, channels, self._split.bits
        places = range(len(self)) if places is None else places
        for start in range(0, len(places), batch_size):
            paths = [self.paths[place] for place in places[start : start + batch_size]]
            try:
                batch = [zoo.photos.prepare(path, *how) for path in paths]
            except ValueError as error:
                raise DataError(str(error)) from error
            yield np.stack(batch)

    def chosen(self, places: Sequence[int] | np.ndarray) -> Iterator[Photo]:
        """Yields the `Photo`s at some places, which ascend."""
        images = self.batches(1, places)
        for number, (place, image) in enumerate(zip(places, images, strict=True), 1):
            if shows_all(self._preparation):
                picture = self._whole(place)
            else:
                picture = np.broadcast_to((image[0] + 1) * 127.5, (*self.shape[:2], 3))
            picture = np.clip(np.round(picture), 0, 255).astype("uint8")
            yield Photo(number, place, self.names[place], image, picture)

    def _whole(self, place):
        photo = self._split.decode(tf.constant(str(self.paths[place])))
        sides = np.array(photo.shape[:2])
        if sides.max() <= LONGER_SIDE:
            return photo.numpy()
        size = np.maximum(np.round(sides * LONGER_SIDE / sides.max()), 1).astype(int)
        return tf.image.resize(photo, size, method="area").numpy()


def _images_in(folder, without, ignored):
    left_out = without and expand_home(without).resolve()
    endings = zoo.photos.endings()
    files, others = [], []
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_hidden or path.is_dir() or left_out in path.resolve().parents:
            continue
        is_image = path.suffix.lower() in endings and path.is_file()
        (files if is_image else others).append(path)
    if not files:
        raise DataError(
            f"{folder} has no images, *{{{','.join(endings)}}}, in it or below: give "
            f"another folder{heic_remedy(others)}."
        )
    ignored += others
    return files
