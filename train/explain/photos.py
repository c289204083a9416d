"""Photos as a model takes them and as the report shows them."""

import dataclasses
import os
import pathlib
import re

import numpy as np
import tensorflow as tf

from train.data import pipeline
from train.data.sources.corrupt import find_corrupt
from train.data.sources.folder_source import file_split, heic_remedy, image_endings
from train.data.sources.splits import DataError, check_name, named, pick
from train.inference.evaluation_data import center_crop
from zoo.text import printable

# Of a photo in the report, in pixels.
LONGER_SIDE = 640


@dataclasses.dataclass(frozen=True)
class Photo:
    """A photo as a model takes it and as the report shows it.

    `number` counts the photos that are shown, from 1, `place` all photos; `name` is the
    path from the folder that all have in common. `image` is float32 (1, height, width,
    channels) in [-1, 1], `picture` uint8 (height, width, 3), made smaller or cropped.
    """

    number: int
    place: int
    name: str
    image: np.ndarray
    picture: np.ndarray

    @property
    def file_name(self):
        """What the names of its figures begin with."""
        stem = re.sub(r"[^\w.+-]+", "-", pathlib.PurePath(self.name).stem)
        return f"{self.number:02}-{stem[:60].strip('-')}"


class Photos:
    """Image files, each once, prepared as for evaluation.

    Of folders all images in them and below, sorted, but for hidden files and images in
    the folder `without`, such as that of an earlier report, that are not named one by
    one. `ignored` has the names of the other files in the folders.

    Raises a DataError where a path does not exist, a folder has no images, a file
    cannot be decoded, or its name has line breaks or is not UTF-8.
    """

    def __init__(self, paths, without=None):
        found, ignored = {}, []
        for path in paths:
            path = pathlib.Path(path).expanduser()
            files = _images_in(path, without, ignored) if path.is_dir() else [path]
            for file in files:
                check_name(str(file), str(file))
                found.setdefault(file.resolve(), file)
        self.paths = tuple(found.values())
        self.ignored = tuple(printable(str(path)) for path in ignored)
        if missing := [str(path) for path in self.paths if not path.is_file()]:
            raise DataError(f"There is no image {named(missing)}: check the path.")
        self.names = _names(self.paths)
        self.shape, self._central_crop = None, False
        files = [str(path) for path in self.paths]
        self._split = file_split("the photos", files, np.zeros(len(files)))
        if corrupt := find_corrupt(self._split):
            raise DataError(
                f"{named(corrupt)} cannot be read as "
                f"{'images' if len(corrupt) > 1 else 'an image'}: damaged, cut off or "
                "of another kind. Save as RGB JPEG or PNG, or leave out."
            )

    def __len__(self):
        return len(self.paths)

    def prepare_for(self, shape, central_crop=False):
        """Sets (height, width, channels), to which photos are squashed or cropped."""
        self.shape, self._central_crop = shape, central_crop

    def batches(self, batch_size):
        """Yields all photos as float32 (photos, height, width, channels) in [-1, 1]."""
        yield from self._batches(self._split, batch_size)

    def one(self, place, number):
        """Returns the `Photo` at a place."""
        [image] = self._batches(pick(self._split, [place]), 1)
        if self._central_crop:
            picture = np.broadcast_to((image[0] + 1) * 127.5, (*self.shape[:2], 3))
        else:
            picture = self._whole(place)
        picture = np.clip(np.round(picture), 0, 255).astype("uint8")
        return Photo(number, place, self.names[place], image, picture)

    def _batches(self, split, batch_size):
        *size, channels = self.shape
        if self._central_crop:
            split = center_crop(split, tuple(size))
        batches = pipeline.evaluation_batches(
            split, image_size=tuple(size), batch_size=batch_size
        )
        for images, _ in pipeline.explained(batches, split):
            if channels == 1:
                images = tf.image.rgb_to_grayscale(images)
            yield images.numpy()

    def _whole(self, place):
        photo = self._split.decode(tf.constant(str(self.paths[place])))
        sides = np.array(photo.shape[:2])
        if sides.max() <= LONGER_SIDE:
            return photo.numpy()
        size = np.maximum(np.round(sides * LONGER_SIDE / sides.max()), 1).astype(int)
        return tf.image.resize(photo, size, method="area").numpy()


def _images_in(folder, without, ignored):
    left_out = without and pathlib.Path(without).expanduser().resolve()
    endings = image_endings()
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


def _names(paths):
    """Paths from the folder that they have in common."""
    paths = [pathlib.Path(os.path.abspath(path)) for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    return tuple(path.relative_to(common).as_posix() for path in paths)
