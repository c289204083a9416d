"""Files of photos: which are read, and the pixels that they show."""

from __future__ import annotations

import importlib.util
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from zoo.common import limits
from zoo.photos import exif, gif, jpeg, png, sixteen_bits, tiff

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
HEIC_ENDINGS = (".heic", ".heif", ".hif")
# Pillow's names of formats that it opens. MPO, photos of phones with further images
# behind, is JPEG to it.
_FORMATS = ("JPEG", "GIF", "BMP", "WEBP", "TIFF")
# Rows of an image that become an array at a time.
_STRIP = 256


def reads_heic() -> bool:
    """Whether pillow-heif is installed, which decodes the photos of iPhones."""
    return importlib.util.find_spec("pillow_heif") is not None


def reads_avif() -> bool:
    """Whether Pillow was built with what decodes AVIF."""
    return importlib.util.find_spec("PIL._avif") is not None


def endings() -> tuple[str, ...]:
    """Returns the endings of files that can be decoded, in lower case."""
    avif = (".avif",) if reads_avif() else ()
    return ENDINGS + avif + (HEIC_ENDINGS if reads_heic() else ())


def decoded(file: IO[bytes], name: str, bits: int | None) -> np.ndarray:
    """Returns the pixels that an open file, which can seek, shows upright.

    They are a uint8 array (height, width, 3). `name` is the file in messages, `bits`
    and errors are those of `zoo.photos.decode`.
    """
    try:
        if file.seek(0, 2) > limits.PHOTO_BYTES:
            raise limits.TooLargeError(f"more than {limits.PHOTO_BYTES:,} bytes")
        file.seek(0)
        if file.read(len(png.START)) == png.START:
            file.seek(0)
            image, turn = png.opened(file.read(), name, bits)
            return _pixels(exif.upright(image, turn))
        with opened(file) as image:
            width, height = image.size
            limits.check_photo_size(width, height, 8 * len(image.getbands()))
            turn = exif.orientation(image.info.get("exif") or b"")
            if image.format in jpeg.FORMATS:
                image = jpeg.opened(image, file)
            elif image.format == "GIF":
                image = gif.opened(image, file)
            elif image.format == "TIFF":
                image, turn = tiff.opened(image, file, name, bits), 1
            return _pixels(exif.upright(image, turn))
    except (sixteen_bits.LevelsError, Warning):
        raise
    except Exception as error:
        raise _unreadable(name, error) from error


def of_image(image: Image.Image, name: str, bits: int | None) -> np.ndarray:
    """Returns the pixels of a `PIL.Image.Image` of the caller, as `decoded` does.

    Those of numbers that are no levels of 8 or 16 bits stay as they are.
    """
    from PIL import ImageChops

    try:
        image.load()  # Pillow turns TIFF files as it loads them.
        is_negative = jpeg.is_negative(image)
        is_ink = tiff.is_negative(image)
        is_deep = image.mode == "I" and image.format == "PNG"
        image = exif.upright(image, _orientation(image))
        if image.mode.startswith("I;16") or is_deep:
            values = sixteen_bits.to_bytes(np.asarray(image), name, bits)
            return 255 - values if is_ink else values
        if image.mode in ("I", "F"):
            return np.asarray(image)
        return _pixels(ImageChops.invert(image) if is_negative else image)
    except (sixteen_bits.LevelsError, Warning):
        raise
    except Exception as error:
        raise _unreadable(name, error) from error


def plain_orientation(encoded: bytes) -> int:
    """Returns the EXIF orientation of a plain JPEG or PNG, and 0 for any other file.

    Plain files have the same pixels by all decoders, but for a few levels of a JPEG.
    """
    kind = png if encoded.startswith(png.START) else jpeg
    return kind.plain_orientation(encoded)


def opened(file: IO[bytes]) -> Any:
    """Returns the `PIL.Image.Image` of a file that is read; no pixels are decoded."""
    from PIL import Image

    formats = list(_FORMATS)
    if reads_avif():
        formats.append("AVIF")
    if reads_heic():
        import pillow_heif

        pillow_heif.register_heif_opener()
        formats.append("HEIF")
    file.seek(0)
    return Image.open(file, formats=formats)


def _orientation(image):
    """Returns the orientation of EXIF alone: Pillow takes that of XMP, too."""
    from PIL import ExifTags

    if "xmp" in image.info or "XML:com.adobe.xmp" in image.info:
        return exif.orientation(image.info.get("exif") or b"")
    return image.getexif().get(ExifTags.Base.Orientation, 1)


def _pixels(image):
    """Returns the array of an image in RGB, in strips, which need no second copy."""
    if image.mode != "RGB":
        image = image.convert("RGB")
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
    if isinstance(error, png.DamageError):
        reason = str(error)
    elif isinstance(error, (Image.DecompressionBombError, limits.TooLargeError)):
        # "Image size (N pixels) exceeds limit of M pixels, could be ..."
        reason, remedy = str(error).partition(", could")[0], "save it smaller"
    elif name.lower().endswith(HEIC_ENDINGS) and not reads_heic():
        remedy = "pip install pillow-heif"
    return ValueError(f"{name} cannot be read as an image ({reason}): {remedy}.")
