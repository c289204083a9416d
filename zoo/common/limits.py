"""Limits of what files may declare, checked before memory is taken.

Each is many times what the largest known model needs. What is a limit of a format
itself, such as the arrays of a `.safetensors`, is here too: a reader has no other.
"""

from collections.abc import Iterable

from zoo.common.safe_text import PrintableError

# Bytes of text that is read whole: names of classes, lists of labels. The names of
# ImageNet-21k have 0.6 MB.
TEXT_BYTES = 2**24
# Bytes of JSON and YAML; parsed, they take up to thirty times the memory. The index of
# a model in hundreds of files has 0.5 MB.
JSON_BYTES = 10_000_000
# Bytes of the index of a registry, which is downloaded.
REGISTRY_BYTES = 4_000_000
# Bytes of small files whose content is a line or two: locks, notes, cached choices.
NOTE_BYTES = 2**16
# Bytes of the file of --config.
CONFIG_BYTES = 2**16
# Bytes of the graph of a SavedModel: that of a ViT-H/14 has 3 MB.
GRAPH_BYTES = 2**28
# Images of a training step.
BATCH_SIZE = 2**20
# Bytes of the table of a data set: ten million rows of 100.
TABLE_BYTES = 2**30
# The header of a `.safetensors`, and the `config.json` in a `.keras`: a ViT-H/14 has
# 0.1 and 0.2 MB.
SAFETENSORS_HEADER_BYTES = 2**20
KERAS_CONFIG_BYTES = 2**25
# Bytes of weights of a model that are not in its `.keras` file.
UNSAVED_BYTES = 2**24
# Weights compress badly: a higher ratio is a decompression bomb.
UNPACKED_RATIO = 10
# Members of a zip archive; each takes 2 KB of memory. A large model with the state of
# its optimizer has 2,000.
ZIP_MEMBERS = 10_000
ZIP_DIRECTORY_BYTES = 2**21
# Files in an archive of photos, bytes of the directory of a zip archive, and how much
# larger unpacked files may be: ImageNet has 1.3 million, drawings compress well.
ARCHIVE_MEMBERS = 2_000_000
ARCHIVE_DIRECTORY_BYTES = 2**28
ARCHIVE_RATIO = 100
# Characters of the name of an array, axes of its shape, and depth of groups in HDF5.
NAME_LENGTH = 1000
AXES = 8
GROUP_DEPTH = 20
# A size that is an argument: those of arrays are int32 in some backends.
SIZE = 2**31 - 1
# A float that is an argument: what float32 can hold.
FLOAT = 3.4e38
# Classes of a head: ImageNet-21k has 21,843.
CLASSES = 1_000_000
# Pixels of the images that a model takes, and of their longer side: a float32 image of
# 4096 x 4096 has 200 MB.
IMAGE_PIXELS = 2**24
IMAGE_SIDE = 2**13
# Pixels of a photo, twice Pillow's `MAX_IMAGE_PIXELS`, and bytes of their values in its
# file, before packing: so many of 8 bits and three colours. Decoded they take 540 MB,
# and up to 3 GB meanwhile.
PHOTO_PIXELS = 178_956_970
PHOTO_VALUES = 3 * PHOTO_PIXELS
# Bytes of the file of a photo.
PHOTO_BYTES = 2**30

# Numbers of a tensor in the graph of an export: the attention of a ViT-H/14 to images
# of 1024 x 1024 has 450 million.
TENSOR_NUMBERS = 2**30
# Fields of the messages of an ONNX file: that of a ViT-B/16 has some thousands.
ONNX_FIELDS = 2**20


class TooLargeError(PrintableError, ValueError):
    """A file has or declares more than a limit; the text says what."""


def is_photo_small(width: int, height: int, bits: int = 24) -> bool:
    """Returns whether a photo is within `PHOTO_PIXELS` and `PHOTO_VALUES`.

    All are ints or int64 tensors; `bits` are those of all values of a pixel, as stored.
    """
    pixels = width * height
    return (pixels <= PHOTO_PIXELS) & (pixels * bits <= 8 * PHOTO_VALUES)


def check_photo_size(width: int, height: int, bits: int = 24) -> None:
    """Raises a TooLargeError unless `is_photo_small`."""
    if is_photo_small(width, height, bits):
        return
    declared, most = f"{width:,} x {height:,} pixels", PHOTO_PIXELS
    if width * height <= PHOTO_PIXELS:
        declared, most = f"{declared} of {bits} bits", 8 * PHOTO_VALUES // bits
    raise TooLargeError(f"{declared}, where {most:,} are the most")


def check_image_size(size: Iterable[int]) -> tuple[int, int]:
    """Returns a model's (height, width); raises a ValueError beyond the limits."""
    sides = tuple(size)
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError("its images have no (height, width) in pixels")
    height, width = sides
    if max(sides) > IMAGE_SIDE or height * width > IMAGE_PIXELS:
        raise ValueError(
            f"its images would have {height:,} x {width:,} pixels, where "
            f"{IMAGE_SIDE:,} per side and {IMAGE_PIXELS:,} in all are the most"
        )
    return height, width
