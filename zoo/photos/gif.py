"""GIF files: a first frame on its canvas."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image, ImageFile


def opened(image: ImageFile.ImageFile, file: IO[bytes]) -> Image.Image:
    """Returns the first frame of a GIF that Pillow has opened, on its whole canvas.

    Where the frame has a transparent colour, all around it has that colour, else the
    background's, black where the file has none.

    Source: GIF89a Specification, sections 18 and 23.
    """
    from PIL import Image

    frame = image.tile[0][1]
    image.load()
    if frame == (0, 0, *image.size) or "transparency" in image.info:
        return image
    canvas = Image.new("RGB", image.size, _background(file))
    canvas.paste(image.crop(frame).convert("RGB"), frame)
    return canvas


def _background(file):
    """Reads the colour of the canvas from the screen's descriptor and palette."""
    file.seek(10)
    flags, background = file.read(2)
    file.seek(13 + 3 * background)
    has_colour = flags >= 128 and background < 2 ** (flags % 8 + 1)
    return tuple(file.read(3)) if has_colour else (0, 0, 0)
