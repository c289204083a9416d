"""Photos in shards: archives, as WebDataset has them, and TFRecord files."""

import itertools
import os
import re
from collections.abc import Iterator

from train.common import packages
from train.common.errors import first_line
from train.data import archives
from train.data.registry import is_archive
from train.predict import remote
from zoo.common.limits import PHOTO_BYTES, TooLargeError
from zoo.common.regular_files import open_regular
from zoo.photos import endings

_RECORDS = re.compile(r".*(\.tfrecords?|-\d{5,}-of-\d{5,})(\.gz)?")
# What examples call a photo: those of ImageNet, and those of TensorFlow Datasets.
_IMAGES = ("image/encoded", "image")


def is_shard(place: str) -> bool:
    """Returns whether a path or URL has the name of a file with many photos.

    >>> is_shard("s3://b/photos-0001.tar"), is_shard("train-00000-of-00004.gz")
    (True, True)
    >>> is_shard("cat.jpg")
    False
    """
    return is_archive(place) or bool(_RECORDS.fullmatch(os.path.basename(place)))


class DamagedError(ValueError):
    """A shard that is damaged, or has no photos where they are expected."""


def photos_of(shard: str) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the content of each photo in a shard, a path or a URL.

    The name is that of the file in it, or the number of the record. Raises an `OSError`
    where the shard cannot be read, and a `DamagedError`.
    """
    read = _of_archive if is_archive(shard) else _of_records
    with remote.local_file(shard) as path:
        yield from read(path)


def _of_archive(path):
    with open_regular(path) as file:
        members = archives.members(path, file)
        known = endings()
        while True:
            try:
                member = next(members, None)
                if member is None:
                    return
                content = _content(member, known)
            # The readers of archives raise errors of any kind at damage.
            except Exception as error:
                raise DamagedError(f"it is damaged: {first_line(error)}") from error
            if content is not None:
                yield member.name, content


def _content(member, known):
    """Returns the bytes of a photo, None for another member."""
    is_file = not (member.is_folder or member.problem)
    is_photo = member.name.lower().endswith(known)
    if not (is_file and is_photo) or archives.is_hidden(member.name):
        return None
    with member.open() as file:
        content = file.read(PHOTO_BYTES + 1)
    if len(content) > PHOTO_BYTES:
        raise TooLargeError(f"{member.name} has more than {PHOTO_BYTES:,} bytes")
    return content


def _of_records(path):
    packages.need(f"The shard {path}", ("tensorflow",), extra="tensorflow")
    import tensorflow as tf

    kind = "GZIP" if path.suffix == ".gz" else ""
    records = tf.data.TFRecordDataset(str(path), kind).as_numpy_iterator()
    for number in itertools.count():
        try:
            record = next(records, None)
            if record is None:
                return
            features = tf.train.Example.FromString(record).features.feature
        # Errors of TensorFlow and of each implementation of protobuf.
        except Exception as error:
            reason = f"record {number} is damaged: {first_line(error)}"
            raise DamagedError(reason) from error
        present = [name for name in _IMAGES if name in features]
        if not present or len(features[present[0]].bytes_list.value) != 1:
            raise DamagedError(
                f"record {number} has no {_IMAGES[0]} with one value, only "
                f"{', '.join(sorted(features))}"
            )
        yield str(number), features[present[0]].bytes_list.value[0]
