"""Photos as the networks take them: decoded upright, resized, scaled to [-1, 1]."""

import collections
import concurrent.futures
import contextlib
import io
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from zoo.common import regular_files
from zoo.common.safe_text import brief, printable
from zoo.network import pair
from zoo.network.preparation import check_bits, check_preparation
from zoo.photos import files
from zoo.photos.files import HEIC_ENDINGS, endings, plain_orientation, reads_heic
from zoo.photos.resizing import fitted, resize

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from PIL import Image

__all__ = [
    "HEIC_ENDINGS",
    "batches",
    "decode",
    "endings",
    "fitted",
    "plain_orientation",
    "prepare",
    "read_ahead",
    "reads_heic",
    "resize",
]

_MOST_THREADS = 16
# JPEG's weights of red, green and blue.
_LUMINANCE = np.array([[0.299], [0.587], [0.114]], "float32")


def batches(
    photos: Iterable, read: Callable, size: int, unread: Callable | None = None
) -> Iterator[tuple[tuple, np.ndarray]]:
    """Yields photos and the array of their images, which threads read ahead.

    Args:
        photos: iterable.
        read: function from a photo to its image, or to a str: why it cannot be read.
        size: photos of a batch; of the last one fewer.
        unread: function that is called with such a photo and the reason.
    """
    with contextlib.closing(read_ahead(photos, read, size)) as done:
        batch = []
        for photo, image in done:
            if isinstance(image, str):
                unread(photo, image)
                continue
            batch.append((photo, image))
            if len(batch) == size:
                yield _stacked(batch)
                batch = []
        if batch:
            yield _stacked(batch)


def _stacked(batch):
    photos, images = zip(*batch, strict=True)
    return photos, np.stack(images)


def read_ahead(items: Iterable, read: Callable, more: int = 0) -> Generator[tuple]:
    """Yields each item with what a function returns for it, in order.

    Threads call the function, each on an item, and on at most `more` items before these
    are yielded.
    """
    waiting: collections.deque[tuple] = collections.deque()
    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(read, item)))
                if len(waiting) > threads + more:
                    item, future = waiting.popleft()
                    yield item, future.result()
            while waiting:
                item, future = waiting.popleft()
                yield item, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def decode(
    photo: "str | os.PathLike | bytes | Image.Image | ArrayLike",
    bits: int | None = None,
    name: str | None = None,
) -> np.ndarray:
    """Decodes a photo to RGB, upright: what training, evaluation and predictions see.

    Args:
        photo: path of a JPEG, PNG, GIF, BMP, WebP, TIFF, AVIF (where Pillow reads it)
            or HEIC file (with pillow-heif), whose content decides and not its name; its
            bytes; a `PIL.Image.Image`, with 8 bits of colours as Pillow reads them;
            or an array (height, width) or (height, width, 1, 3 or 4) of uint8 or of
            numbers in [0, 255]. Of an animation the first frame is taken, of a TIFF the
            first page; transparency is dropped.
        bits: how many bits the values of PNG and TIFF files of 16 bits have, 8 to 16,
            such as 12 of many cameras and scanners; by default those of the file's
            sBIT chunk, else 16. The chunk also comes before a
            `zoo.network.preparation.ModelBits`.
        name: what messages call a file; by default its path, and "This file" for bytes.

    Returns:
        uint8 array (height, width, 3); a float array stays one.

    Raises:
        ValueError: it is not a photo, cannot be decoded, or has values of more bits.
        OSError: there is no such file, or it cannot be read.

    Warns:
        UserWarning: without `bits`, the values of 16 bits end below 4,096.

    Source:
        The evaluation of the released code, which decodes by TensorFlow: JPEG files
        differ from it by one or two levels of 255 on average, 15 at most. A JPEG in
        CMYK is inverted if Adobe's marker says so, as in libjpeg's documentation.

    Example:
        >>> decode(np.zeros((4, 6), "uint8")).shape
        (4, 6, 3)
    """
    bits = check_bits(bits)
    if isinstance(photo, (str, os.PathLike)):
        name = printable(name or os.fsdecode(photo))
        with _opened(photo, name) as file:
            return files.decoded(file, name, bits)
    if isinstance(photo, (bytes, bytearray, memoryview)):
        return files.decoded(io.BytesIO(photo), printable(name or "This file"), bits)
    if not isinstance(photo, np.ndarray):
        from PIL import Image

        if isinstance(photo, Image.Image):
            photo = files.of_image(photo, f"An image of mode {photo.mode}", bits)
    return _checked(_array(photo))


def prepare(
    photo: "str | os.PathLike | bytes | Image.Image | ArrayLike",
    image_size: int | tuple[int, int],
    preparation: str = "squash",
    channels: int = 3,
    bits: int | None = None,
) -> np.ndarray:
    """Returns a photo as a model takes it.

    Args:
        photo: what `decode` takes.
        image_size: int or (height, width) of the model, in pixels.
        preparation: `"squash"`, which resizes all of the photo to the model's size as
            the released evaluation does, `"central crop"`, which resizes it until
            the model's size covers 7/8 of its shorter side, and cuts out the centre;
            or like `"timm crop bicubic 0.9"`, a `zoo.network.preparation.Preparation`.
        channels: 3, or 1 for a model of gray images, which gets their luminance.
        bits: see `decode`.

    Returns:
        float32 array (height, width, channels) in [-1, 1].

    Raises:
        ValueError: it is not a photo, or another preparation.

    Source:
        Released `input_pipeline.py`; big_vision's evaluation of ImageNet models,
        `resize_small(256, "area")|central_crop(224)`.

    Example:
        >>> prepare(np.full((4, 6, 3), 255, "uint8"), 2).max().item()
        1.0
    """
    size = pair(image_size, "image_size")
    check_preparation(preparation)
    image = fitted(decode(photo, bits), size, preparation)
    if channels == 1:
        image = image @ _LUMINANCE
    return (image - np.float32(127.5)) / np.float32(127.5)


def _opened(path, name):
    try:
        return regular_files.open_regular(path)
    except regular_files.NotRegularError:
        raise
    except OSError as error:
        remedy = regular_files.remedy(error)
        text = f"{name} cannot be opened ({error.strerror}): {remedy}"
        raise regular_files.with_text(error, text) from error


def _array(photo):
    array = None
    with contextlib.suppress(ValueError, TypeError):  # rows of different lengths
        array = np.asarray(photo)
    if array is None or array.dtype.kind not in "uif":
        raise ValueError(
            "A photo is a path, the bytes of a file, a PIL.Image.Image or an array of "
            f"numbers, got {brief(photo)}: pass one of these, and several as a list."
        )
    return array


def _checked(image):
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3 or image.shape[2] not in (1, 3, 4) or 0 in image.shape:
        raise ValueError(
            "A photo is an array (height, width) or (height, width, 1, 3 or 4), got "
            f"shape {image.shape}: give several as a list."
        )
    if image.dtype != np.uint8:
        _check_range(image)
    if image.shape[2] == 1:
        return np.repeat(image, 3, axis=2)
    return image[..., :3]


def _check_range(image):
    low, high = image.min(), image.max()
    remedy = None
    if low < 0:
        remedy = "leave preprocess_input out, it is done here"
    elif not high <= 255:
        remedy = "scale them to that range"
    elif image.dtype.kind == "f" and 0 < high <= 1:
        remedy = "multiply them by 255"
    if remedy is not None:
        raise ValueError(
            f"The values of a photo are in [0, 255], got {low:g} to {high:g}: {remedy}."
        )
