"""Photos that look natural to statistics, and copies of them."""

import io

import numpy as np
from PIL import Image, ImageEnhance, ImageOps


def photo(seed, size=(120, 160)):
    """An image whose amplitudes fall as the frequency rises, as those of photos do."""
    rng = np.random.default_rng(seed)
    rows, columns = (np.fft.fftfreq(side, 1 / side) for side in size)
    fall = 1 / np.maximum(np.hypot(rows[:, None], columns), 1) ** 1.2
    noise = rng.normal(size=(3, *size)) + rng.normal(size=size)
    planes = np.fft.ifft2(np.fft.fft2(noise) * fall).real
    planes /= 4 * planes.std(axis=(1, 2), keepdims=True)
    pixels = np.clip(127.5 + 127.5 * planes, 0, 255)
    return Image.fromarray(pixels.transpose(1, 2, 0).astype("uint8"))


def encoded(image, format="JPEG", **options):
    """The bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def cropped(image, left=0.0, top=0.0, right=0.0, bottom=0.0):
    """An image without these parts of its sides."""
    width, height = image.size
    box = (left * width, top * height, (1 - right) * width, (1 - bottom) * height)
    return image.crop(tuple(map(round, box)))


# The files of a copy of an image.
COPIES = {
    "resized": lambda image: encoded(image.resize((90, 70)), quality=90),
    "poor quality": lambda image: encoded(image, quality=15),
    "another format": lambda image: encoded(image, "PNG"),
    "brighter": lambda image: encoded(ImageEnhance.Brightness(image).enhance(1.15)),
    "mirrored": lambda image: encoded(ImageOps.mirror(image), quality=85),
    "cropped at one side": lambda image: encoded(cropped(image, left=0.05)),
    "cropped around": lambda image: encoded(
        cropped(image, 0.025, 0.025, 0.025, 0.025), quality=85
    ),
    "mirrored and cropped": lambda image: encoded(
        cropped(ImageOps.mirror(image), right=0.05, top=0.05)
    ),
}
