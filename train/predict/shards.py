"""Photos in shards: archives, as WebDataset has them, and TFRecord files."""

import contextlib
import errno
import gzip
import hashlib
import itertools
import os
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import IO

from train.common import packages
from train.common.errors import RunError, first_line
from train.data import archives
from train.data.registry import is_archive
from train.predict import remote
from zoo.common.limits import ARCHIVE_DIRECTORY_BYTES, PHOTO_BYTES
from zoo.common.regular_files import open_regular
from zoo.photos import endings

_RECORDS = re.compile(r".*(\.tfrecords?|-\d{5,}-of-\d{5,})(\.gz)?")
# Examples call a photo so: of ImageNet, and of TensorFlow Datasets.
_IMAGES = ("image/encoded", "image")
# A record has a length and its checksum before it, and a checksum behind it.
_HEADER, _FOOTER = 12, 4
# Bytes of a record beside those of its photo.
_LABELS = 2**20
# A zip archive ends in a list of its files, in two records of fixed sizes where it is
# large, and in one that has the size of the list, which a comment may follow.
_ZIP_64, _ZIP_END = 56 + 20, 22 + 2**16


class DamagedError(ValueError):
    """A shard that is damaged: what follows cannot be read."""


def is_shard(place: str) -> bool:
    """Returns whether a path or URL has the name of a file with many photos.

    >>> is_shard("s3://b/photos-0001.tar"), is_shard("train-00000-of-00004.gz")
    (True, True)
    >>> is_shard("cat.jpg")
    False
    """
    return is_archive(place) or bool(_RECORDS.fullmatch(os.path.basename(place)))


def num_photos(shard: str) -> int | None:
    """Returns how many photos a shard has, None unless it is a `.zip` file here.

    Only of such a file can some photos be read without those before them.
    """
    if remote.is_url(shard) or not shard.lower().endswith(".zip"):
        return None
    try:
        with open_regular(shard) as file:
            return sum(1 for _ in _members(pathlib.Path(shard), file))
    except (OSError, DamagedError):
        # Whoever reads it says so.
        return None


def version_of(shard: str) -> list[int]:
    """Returns the size of a `.zip` file, and a digest of its list of files.

    Copies of it have the same on every machine. Without a file it is empty.
    """
    with contextlib.suppress(OSError), open_regular(shard) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - _ZIP_END, 0))
        end = file.read()
        end = end[max(end.rfind(b"PK\5\6"), 0) :]
        length = int.from_bytes(end[12:16], "little") + _ZIP_64 + len(end)
        length = min(length, ARCHIVE_DIRECTORY_BYTES, size)
        file.seek(size - length)
        digest = hashlib.blake2b(file.read(length), digest_size=8).digest()
        return [size, int.from_bytes(digest, "little")]
    return []


def photos_of(
    shard: str, start: int = 0, stop: int | None = None
) -> Iterator[tuple[str, bytes | None, str]]:
    """Yields each photo in a shard, a path or a URL: its name, its content, "".

    The name is that of the file in it, or the number of the record. Of a photo that
    cannot be read the content is None, and the text says why. Raises an `OSError` where
    the shard cannot be read, and a `DamagedError`. `start` and `stop` are those of a
    slice of the photos in an archive.
    """
    with remote.local_file(shard) as path:
        if is_archive(shard):
            yield from _of_archive(path, start, stop)
        else:
            yield from _of_records(path)


@contextlib.contextmanager
def _explained(what):
    """Turns the errors that damage raises, of any kind, into a `DamagedError`."""
    try:
        yield
    except gzip.BadGzipFile as error:
        raise DamagedError(f"{what} is damaged: {first_line(error)}") from error
    except (RunError, OSError, MemoryError):
        raise
    except Exception as error:
        raise DamagedError(f"{what} is damaged: {first_line(error)}") from error


def _members(path, file):
    """Yields names and members of the photos in an archive that is open."""
    known = endings()
    members = archives.members(path, file)
    while True:
        with _explained("it"):
            member = next(members, None)
        if member is None:
            return
        name = member.name.replace("\\", "/")
        is_photo = name.lower().endswith(known) and not member.is_folder
        if is_photo and not archives.is_hidden(name):
            yield name, member


def _of_archive(path, start, stop):
    with open_regular(path) as file:
        for name, member in itertools.islice(_members(path, file), start, stop):
            if member.problem:
                yield name, None, f"it {member.problem}"
                continue
            try:
                with _explained("it"), member.open() as content:
                    found = remote.read_bounded(content, PHOTO_BYTES)
            except DamagedError as error:
                yield name, None, str(error)
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                yield name, None, str(error.strerror)
            else:
                yield name, found, ""


def _of_records(path):
    packages.need(f"The shard {path}", ("tensorflow",), extra="tensorflow")
    import tensorflow as tf

    is_packed = path.suffix == ".gz"
    with open_regular(path) as file:
        # TensorFlow takes the memory that a length declares.
        packed = gzip.GzipFile(fileobj=file) if is_packed else file
        whole, are_all = _whole_records(packed)
    records = tf.data.TFRecordDataset(str(path), "GZIP" if is_packed else "")
    left = records.take(whole).as_numpy_iterator()
    for number in range(whole):
        with _explained(f"record {number}"):
            features = tf.train.Example.FromString(next(left)).features.feature
        present = [name for name in _IMAGES if name in features]
        if present and len(features[present[0]].bytes_list.value) == 1:
            yield str(number), features[present[0]].bytes_list.value[0], ""
        else:
            names = ", ".join(sorted(features))
            reason = f"the record has no {_IMAGES[0]} with one value, only {names}"
            yield str(number), None, reason
    if not are_all:
        raise DamagedError(f"record {whole} is cut, or longer than a photo can be")


def _whole_records(file: IO[bytes]) -> tuple[int, bool]:
    """Returns how many whole records a file begins with, and whether these are all.

    None of them is longer than that of a photo can be.
    """
    count = 0
    try:
        while header := file.read(_HEADER):
            length = int.from_bytes(header[:8], "little")
            if len(header) < _HEADER or length > PHOTO_BYTES + _LABELS:
                return count, False
            file.seek(length + _FOOTER - 1, os.SEEK_CUR)
            if not file.read(1):
                return count, False
            count += 1
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return count, False
    return count, True
