"""Small pictures of photos: a JPEG is decoded at a part of its size."""

from __future__ import annotations

import io

from PIL import Image

from zoo.photos import exif, files, jpeg


def reduced(
    encoded: bytes,
    side: int,
    bits: int | None = None,
    name: str = "This file",
    mode: str = "RGB",
) -> Image.Image:
    """Decodes a photo upright, a plain JPEG at the least size of at least `side`.

    Args:
        encoded: the bytes of a file that `zoo.photos.decode` reads.
        side: pixels that both sides must have, unless the photo has fewer.
        bits: see `zoo.photos.decode`.
        name: what messages call the file.
        mode: Pillow's "RGB", or "L" for luminance.

    Raises:
        ValueError: see `zoo.photos.decode`.
    """
    image = _draft(encoded, side, mode)
    if image is None:
        pixels = files.decoded(io.BytesIO(encoded), name, bits)
        image = Image.fromarray(pixels)
    return image.convert(mode)


def _draft(encoded, side, mode):
    """Returns a plain JPEG decoded at a part of its size, None for other files."""
    turn = jpeg.plain_orientation(encoded)
    if not turn:
        return None
    try:
        image = Image.open(io.BytesIO(encoded), formats=("JPEG",))
        image.draft(mode, (side, side))
        return exif.upright(image.convert(mode), turn)
    # Decoders raise errors of any kind at damaged bytes.
    except Exception:
        return None
