"""Photos as the networks take them: decoded upright, resized, scaled to [-1, 1]."""

import collections
import concurrent.futures
import importlib.util
import io
import math
import os

import numpy as np

from zoo import regular_files
from zoo.network import pair
from zoo.photos import levels
from zoo.preparation import check_preparation, resized
from zoo.text import printable

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
HEIC_ENDINGS = (".heic", ".heif", ".hif")
# Pillow's names. MPO, photos of phones with further images behind, is JPEG to it.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
_JPEG = ("JPEG", "MPO")
_END_OF_JPEG = b"\xff\xd9"
# Rows of an image that become an array at a time.
_STRIP = 256
# Of red, green and blue, as JPEG has it.
_LUMINANCE = np.array([[0.299], [0.587], [0.114]], "float32")


def reads_heic() -> bool:
    """Whether pillow-heif is installed, which decodes the photos of iPhones."""
    return importlib.util.find_spec("pillow_heif") is not None


def _reads_avif():
    """Whether Pillow was built with what decodes AVIF."""
    return importlib.util.find_spec("PIL._avif") is not None


def endings() -> tuple[str, ...]:
    """Returns the endings of files that can be decoded, in lower case."""
    avif = (".avif",) if _reads_avif() else ()
    return ENDINGS + avif + (HEIC_ENDINGS if reads_heic() else ())


def read_ahead(items, read, *, threads, ahead):
    """Yields each item with what a function returns for it, in order.

    Threads call the function, on at most `ahead` items more than have been yielded.
    """
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(read, item)))
                if len(waiting) > ahead:
                    item, future = waiting.popleft()
                    yield item, future.result()
            while waiting:
                item, future = waiting.popleft()
                yield item, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def decode(photo, bits: int | None = None) -> np.ndarray:
    """Decodes a photo to RGB, upright: what training, evaluation and predictions see.

    Args:
        photo: path of a JPEG, PNG, GIF, BMP, WebP, TIFF, AVIF (where Pillow reads it)
            or HEIC file (with pillow-heif), whose content decides and not its name; its
            bytes; a `PIL.Image.Image`; or an array (height, width) or (height, width,
            1, 3 or 4) of uint8 or of numbers in [0, 255]. Of an animation the first
            frame is taken, of a TIFF the first page; transparency is dropped.
        bits: how many bits the values of PNG and TIFF files of 16 bits have, 9 to 16,
            such as 12 of many cameras and scanners; by default those of the file's
            sBIT chunk, else 16.

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
    levels.check_bits(bits)
    if isinstance(photo, (str, os.PathLike)):
        with regular_files.open_regular(photo) as file:
            return _opened(file, printable(os.fsdecode(photo)), bits)
    if isinstance(photo, (bytes, bytearray, memoryview)):
        return _opened(io.BytesIO(photo), f"{len(photo):,} bytes", bits)
    if isinstance(photo, np.ndarray):
        return _checked(photo)

    from PIL import Image

    if isinstance(photo, Image.Image):
        return _decoded(photo, f"An image of mode {photo.mode}", bits)
    return _checked(np.asarray(photo))


def has_end_marker(jpeg: bytes) -> bool:
    """Returns whether a marker of JPEG ends what follows its first scan's header.

    Example:
        >>> has_end_marker(b"no JPEG")
        False
    """
    place = 2
    while jpeg[place : place + 1] == b"\xff" and len(jpeg) >= place + 4:
        kind = jpeg[place + 1]
        if kind == 0xFF:
            place += 1
            continue
        length = int.from_bytes(jpeg[place + 2 : place + 4], "big")
        place += 2 + length
        if kind == 0xDA:
            return jpeg.find(_END_OF_JPEG, place) >= 0
    return False


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes a photo as the released evaluation does: bilinear, without antialias.

    Args:
        image: array (height, width, channels) of numbers.
        size: (height, width) in pixels.

    Returns:
        float32 array (height, width, channels) in the same range, the numbers of
        `tf.image.resize`.

    Example:
        >>> resize(np.array([[[0], [2]]]), (1, 4))[0, :, 0].tolist()
        [0.0, 0.5, 1.5, 2.0]
    """
    if image.shape[:2] == tuple(size):
        return image.astype("float32")
    top, bottom, down = _places(image.shape[0], size[0])
    left, right, across = _places(image.shape[1], size[1])
    # Columns first, of the rows that are read: those of a large photo are few.
    across, down = across[:, None], down[:, None, None]

    def row(places):
        rows = image[places].astype("float32", copy=False)
        first = rows[:, left]
        return first + (rows[:, right] - first) * across

    upper = row(top)
    return upper + (row(bottom) - upper) * down


def fitted(image: np.ndarray, size: tuple[int, int], preparation: str) -> np.ndarray:
    """Returns a decoded photo at a model's size, as a float32 array in its range.

    Args:
        image: array (height, width, channels) of numbers in [0, 255].
        size: (height, width) in pixels.
        preparation: see `prepare`.

    Example:
        >>> fitted(np.zeros((40, 60, 3), "uint8"), (32, 32), "squash").shape
        (32, 32, 3)
    """
    if preparation == "squash":
        return resize(image, size)
    if preparation == "central crop":
        return _central_crop(image, size)
    return resized(image, size, preparation)


def prepare(
    photo,
    image_size,
    preparation: str = "squash",
    channels: int = 3,
    bits: int | None = None,
):
    """Returns a photo as a model takes it.

    Args:
        photo: what `decode` takes.
        image_size: int or (height, width) of the model, in pixels.
        preparation: `"squash"`, which resizes all of the photo to the model's size as
            the released evaluation does, `"central crop"`, which resizes it until
            the model's size covers 7/8 of its shorter side, and cuts out the centre;
            or like `"timm crop bicubic 0.9"`, see `zoo.preparation.Preparation`.
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
        >>> prepare(np.full((4, 6, 3), 255, "uint8"), 2).max()
        np.float32(1.0)
    """
    size = pair(image_size, "image_size")
    check_preparation(preparation)
    image = fitted(decode(photo, bits), size, preparation)
    if channels == 1:
        image = image @ _LUMINANCE
    return (image - np.float32(127.5)) / np.float32(127.5)


def _opened(file, name, bits):
    from PIL import Image

    formats = list(_FORMATS)
    if _reads_avif():
        formats.append("AVIF")
    if reads_heic():
        import pillow_heif

        pillow_heif.register_heif_opener()
        formats.append("HEIF")
    try:
        image = Image.open(file, formats=formats)
    except Exception as error:
        raise _unreadable(name, error) from error
    with image:
        return _decoded(image, name, bits, file)


def _decoded(image, name, bits, file=None):
    """Returns the pixels of an image, of the caller or of a file that is open."""
    from PIL import ImageChops, ImageOps

    kind, values, significant = image.format, None, None
    try:
        if file is not None:
            if kind == "PNG":
                *_, significant = levels.bits_of_png(file)
            image = _loaded(image, file)
        # A copy of a photo of 12 megapixels takes 48 MB: only of the callers' images.
        upright = ImageOps.exif_transpose(image, in_place=file is not None) or image
        if upright.mode.startswith(("I", "F")):
            values = np.asarray(upright)
        elif kind == "PNG" and file is not None:
            values = levels.of_colours(upright, file, name, bits)
        if values is None:
            # Pillow takes all of them to be inverted, as Adobe's programs write them.
            if kind in _JPEG and upright.mode == "CMYK" and "adobe" not in image.info:
                upright = ImageChops.invert(upright)
            return _pixels(upright if upright.mode == "RGB" else upright.convert("RGB"))
    except levels.LevelsError:
        raise
    except Exception as error:
        raise _unreadable(name, error) from error
    # Conversion to RGB would clip levels of 16 bits, nearly all to white.
    if upright.mode.startswith("I;16") or kind == "PNG":
        if kind == "TIFF":
            bits = levels.bits_of_tiff(image) or bits
        values = levels.to_bytes(values, name, bits, significant)
        if kind == "TIFF" and levels.is_negative(image):
            values = 255 - values
    elif kind == "TIFF":
        raise ValueError(
            f"{name} has values of {values.dtype}: save it with 8 or 16 bits."
        )
    return _checked(values)


def _loaded(image, file):
    """Returns an image whose pixels are decoded, be it a JPEG without end marker."""
    from PIL import Image

    try:
        image.load()
        return image
    except OSError:
        if image.format not in _JPEG:
            raise
        file.seek(0)
        encoded = file.read()
        # What follows a whole scan is passed over: it cannot change any pixel.
        found = []
        for filler in (b"\0", b"\xaa"):
            ended = io.BytesIO(encoded + 64 * filler + _END_OF_JPEG)
            found.append(Image.open(ended, formats=["JPEG"]))
        if found[0].tobytes() != found[1].tobytes():
            raise
        return found[0]


def _pixels(image):
    """Returns the array of an RGB image, in strips, which need no second copy."""
    pixels = np.empty((image.height, image.width, 3), "uint8")
    for top in range(0, image.height, _STRIP):
        bottom = min(top + _STRIP, image.height)
        strip = image.crop((0, top, image.width, bottom))
        pixels[top:bottom] = np.asarray(strip)
    return pixels


def _unreadable(name, error):
    from PIL import Image

    # Decoders raise what damaged bytes lead their code into: OSError, SyntaxError,
    # struct.error and more.
    reason, remedy = type(error).__name__, "save it as JPEG or PNG"
    if isinstance(error, Image.DecompressionBombError):
        # "Image size (N pixels) exceeds limit of M pixels, could be ..."
        reason, remedy = str(error).partition(",")[0], "save it smaller"
    elif name.lower().endswith(HEIC_ENDINGS) and not reads_heic():
        remedy = "pip install pillow-heif"
    return ValueError(f"{name} cannot be read as an image ({reason}): {remedy}.")


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
    if image.dtype.kind not in "uif":
        raise ValueError(f"A photo is an array of numbers, got {image.dtype}.")
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


def _places(side, new):
    """Returns of each new place the two old ones beside it, and the second's weight."""
    scale = np.float32(side) / np.float32(new)
    places = (np.arange(new, dtype="float32") + np.float32(0.5)) * scale
    places -= np.float32(0.5)
    floor = np.floor(places)
    first = np.maximum(floor, 0).astype(int)
    second = np.minimum(np.ceil(places), side - 1).astype(int)
    return first, second, places - floor


def _central_crop(image, size):
    bigger = _bigger(image.shape[:2], size)
    start = (bigger - size) // 2
    for axis in range(2):
        image = _averaged(image, axis, bigger[axis], start[axis], size[axis])
    return image


def _bigger(sides, size):
    """Returns the (height, width) of which the central crop has 7/8 or less."""
    # In float32, which decides how they are rounded.
    sides, new = np.float32(sides), np.float32(size)
    scale = (new / sides).max() * np.float32(8) / np.float32(7)
    return np.maximum(np.round(sides * scale).astype(int), size)


def _averaged(image, axis, new, start, count):
    """Returns the means over equal parts of an axis, as `method="area"` has them.

    These are `count` of the `new` parts, from `start` on.
    """
    image = np.moveaxis(image, axis, 0)
    lines = image.reshape(len(image), -1)
    step = np.float32(len(image)) / np.float32(new)
    ends = np.arange(start, start + count + 1, dtype="float32")[:, None] * step
    firsts = np.floor(ends[:-1])
    places = firsts + np.arange(math.ceil(step) + 1, dtype="float32")
    shares = np.minimum(places + 1, ends[1:]) - np.maximum(places, ends[:-1])
    shares = np.where(places < len(image), np.maximum(shares, 0), np.float32(0))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.empty((count, lines.shape[1]), "float32")
    for row, first, weights in zip(rows, firsts[:, 0].astype(int), shares, strict=True):
        parts = lines[first : first + len(weights)]
        np.matmul(weights[: len(parts)], parts.astype("float32"), out=row)
    return np.moveaxis(rows.reshape(count, *image.shape[1:]), 0, axis)
