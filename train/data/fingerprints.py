"""One look at every photo of a split: its digest, its header, a small picture."""

import functools
import hashlib
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from train.data.sources.splits import Split, is_of_files, tf_options
from zoo import photos
from zoo.common.limits import PHOTO_BYTES
from zoo.common.regular_files import read_bytes
from zoo.photos import thumbnails
from zoo.photos.headers import Header, header
from zoo.store.progress import progress_bar

# Pixels per side of the small pictures that copies are found by. Photos with a shorter
# side have too few details: many digits of 28 pixels are alike.
SIDE = 32
# Levels that a small picture deviates from its mean at least: others show nothing.
_LEAST_DEVIATION = 4
# A JPEG is decoded at this size at least, so that its pixels are averages.
_DECODED = 2 * SIDE
# Fewer photos are read without a progress bar.
_SHOWN_PHOTOS = 500
# Photos whose content is read ahead of the threads.
_AHEAD = 64


class Fingerprint(NamedTuple):
    """What is kept of a photo.

    Attributes:
        digest: of its bytes, or of its pixels where it is no file; empty where it
            cannot be decoded.
        small: uint8 (SIDE, SIDE), its luminance, upright and squashed to a square; None
            where it cannot be decoded.
        has_details: whether it shows enough to be told from other photos.
        header: what the file declares, None where nobody has looked.
        unread: why it cannot be decoded, else "".
    """

    digest: bytes
    small: np.ndarray | None = None
    has_details: bool = False
    header: Header | None = None
    unread: str = ""


def fingerprints(split: Split) -> list[Fingerprint]:
    """Reads and decodes every photo of a split, in its order; threads do."""
    taken = []
    take = functools.partial(_taken, bits=split.bits)
    with (
        # Whoever trains on photos is warned of their bits.
        warnings.catch_warnings(action="ignore", category=UserWarning),
        progress_bar(
            total=split.num_examples,
            unit="photo",
            desc=f"looking for copies in {split.name}",
            disable=split.num_examples < _SHOWN_PHOTOS,
        ) as bar,
    ):
        named = zip(split.names(), contents(split), strict=True)
        for _, fingerprint in photos.read_ahead(named, take, _AHEAD):
            taken.append(fingerprint)
            bar.update(1)
    return taken


def contents(split: Split) -> Iterator[str | bytes | np.ndarray]:
    """Yields the path, the encoded image or the pixels of every example, in order."""
    if is_of_files(split):
        yield from split.arrays[0]
        return
    read = split.records().map(
        lambda record, _: split.read(record), num_parallel_calls=2, deterministic=True
    )
    yield from read.prefetch(_AHEAD).with_options(tf_options()).as_numpy_iterator()


def _taken(named, bits):
    name, content = named
    try:
        if isinstance(content, np.ndarray):
            return _of_pixels(content)
        if isinstance(content, str):
            content = read_bytes(content, PHOTO_BYTES)
    except (OSError, ValueError) as error:
        return Fingerprint(b"", unread=str(error))
    return _of_file(content, name, bits)


def _of_pixels(pixels):
    digest = hashlib.blake2b(pixels.tobytes(), digest_size=16)
    digest.update(str(pixels.shape).encode())
    height, width, channels = pixels.shape
    image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    head = Header("pixels", width, height, 8, channels)
    return _of_image(digest.digest(), image.convert("L"), head)


def _of_file(encoded, name, bits):
    digest = hashlib.blake2b(encoded, digest_size=16).digest()
    try:
        image = thumbnails.reduced(encoded, _DECODED, bits, name, mode="L")
        return _of_image(digest, image, header(encoded))
    except (ValueError, MemoryError) as error:
        return Fingerprint(b"", unread=str(error) or "it is too large")


def _of_image(digest, image, head):
    small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX))
    is_large = min(head.width, head.height) >= SIDE
    has_details = is_large and small.std() >= _LEAST_DEVIATION
    return Fingerprint(digest, small, bool(has_details), head)
