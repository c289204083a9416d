"""PNG files: which are sound, and the parts that make up their pixels."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zoo.common import limits
from zoo.network.preparation import ModelBits
from zoo.photos import exif, sixteen_bits

if TYPE_CHECKING:
    from PIL import Image

START = b"\x89PNG\r\n\x1a\n"
_GRAY, _PALETTE, _GRAY_AND_ALPHA, _RGBA = 0, 3, 4, 6
_COLOURS = (2, _RGBA)
# Samples per pixel, and the bits that a sample may have.
_SAMPLES = {_GRAY: 1, 2: 3, _PALETTE: 1, _GRAY_AND_ALPHA: 2, _RGBA: 4}
_DEPTHS = {_GRAY: (1, 2, 4, 8, 16), _PALETTE: (1, 2, 4, 8)}
_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
# TensorFlow would unpack up to 8 MB of each.
_PACKED_TEXT = (b"zTXt", b"iTXt")
# Bytes that are unpacked at a time: those of a stored block.
_BLOCK = 2**16 - 1
_HEADER_PLACE = len(START)


class DamageError(ValueError):
    """A PNG file is damaged; the text says where."""


class Header(NamedTuple):
    """The IHDR chunk of a PNG file."""

    width: int
    height: int
    depth: int
    colour: int
    compression: int
    filtering: int
    interlace: int


class Parts(NamedTuple):
    """What makes up the pixels of a PNG file.

    Attributes:
        file: a PNG file of nothing else, its pixels unpacked.
        significant: bits of the sBIT chunk.
        turn: the EXIF orientation.
    """

    header: Header
    file: io.BytesIO
    significant: int | None
    turn: int


def opened(encoded: bytes, name: str, bits: int | None) -> tuple[Image.Image, int]:
    """Returns the image of a PNG file, stored as it is, and its EXIF orientation.

    Only the chunks of its pixels are handed to Pillow: no text is ever unpacked. `name`
    and `bits` are as in `files.decoded`, whose errors are ValueErrors.
    """
    from PIL import Image

    parts = _parts(memoryview(encoded))
    if parts.header.depth == 16:
        if parts.significant and isinstance(bits, ModelBits):
            bits = None
        values = _values(parts, bits)
        if values.dtype != np.uint8:
            values = sixteen_bits.to_bytes(values, name, bits, parts.significant)
        return Image.fromarray(values), parts.turn
    image = _image(parts)
    image.load()
    return image, parts.turn


def samples(encoded: bytes) -> tuple[np.ndarray, Header]:
    """Returns the samples of a PNG file as they are stored, upright, and its header.

    Of a palette they are its indices. They are uint8 `(height, width)`, with several
    channels `(height, width, channels)`; grays of 16 bits are uint16. Raises an error
    of any kind for other files, and a DamageError for colours of 16 bits.
    """
    parts = _parts(memoryview(encoded))
    header = parts.header
    if header.depth == 16 and header.colour != _GRAY:
        raise DamageError("16 bits per colour")
    image = exif.upright(_image(parts), parts.turn)
    values = sixteen_bits.array(image)
    if header.colour == _GRAY and header.depth in (2, 4):
        # Pillow spreads these over 0..255.
        values = values // (255 // (2**header.depth - 1))
    return values.astype("uint16" if header.depth == 16 else "uint8"), header


def plain_orientation(encoded: bytes) -> int:
    """Returns the EXIF orientation of a plain PNG, and 0 for any other.

    Plain are up to 8 bits, and nothing packed but the pixels and a colour profile.
    Other damage is refused by all decoders alike.
    """
    turn = None
    try:
        for kind, start, end in _chunks(encoded):
            content = encoded[start + 8 : end - 4]
            if start == len(START) and kind != b"IHDR" or kind in _PACKED_TEXT:
                return 0
            if kind == b"IHDR" and _header(content).depth == 16:
                return 0
            if kind == b"eXIf" and turn is None:
                turn = exif.orientation(content)
    except ValueError:
        return 0
    return turn or 1


def _parts(encoded):
    """Reads the chunks of a file, and refuses the damage that libpng refuses.

    Source: PNG specification, third edition, sections 5.3 to 5.6, 11.2 and 11.3.
    """
    header = palette = significant = turn = stop = None
    stream = []
    for kind, start, end in _sound_chunks(encoded):
        content = encoded[start + 8 : end - 4]
        if kind == b"IHDR":
            header = _header(content)
        elif kind == b"PLTE":
            _check_palette(header, palette, content)
            palette = encoded[start:end]
        elif kind == b"IDAT":
            if header.colour == _PALETTE and palette is None:
                raise DamageError("no palette")
            # Skip chunks that are not adjacent to the first ones.
            if not stream or start == stop:
                stream.append(content)
                stop = end
        elif kind == b"sBIT" and not stream and palette is None:
            significant = _significant(header, content)
        elif kind == b"eXIf" and turn is None:
            turn = exif.orientation(content)
    file = _unpacked(header, palette, stream)
    return Parts(header, file, significant, turn or 1)


def _sound_chunks(encoded):
    """Yields what `_chunks` does, and refuses damage to what no decoder may skip."""
    for number, (kind, start, end) in enumerate(_chunks(encoded)):
        if kind[:1].isupper():
            content, checksum = encoded[start + 8 : end - 4], encoded[end - 4 : end]
            _check_critical(kind, content, checksum)
        if (number == 0) != (kind == b"IHDR"):
            raise DamageError("IHDR is not the only first chunk")
        yield kind, start, end


def _check_palette(header, earlier, content):
    if earlier is not None:
        raise DamageError("two palettes")
    if header.colour == _PALETTE and len(content) not in range(3, 769, 3):
        raise DamageError("a palette of another length")


def _check_critical(kind, content, checksum):
    if _checksum(kind, content) != checksum:
        raise DamageError(f"wrong checksum of {kind.decode()}")
    if kind not in _CRITICAL:
        raise DamageError(f"unknown chunk {kind.decode()}")


def _chunks(encoded):
    """Yields the kind of every chunk and where it starts and ends, up to IEND."""
    kind, end = None, len(START)
    while kind != b"IEND":
        start = end
        if len(encoded) < start + 8:
            raise DamageError("it is cut")
        length, kind = struct.unpack_from(">I4s", encoded, start)
        end = start + 12 + length
        if end > len(encoded):
            raise DamageError("it is cut")
        if not kind.isalpha():
            raise DamageError("a chunk without a name")
        yield kind, start, end


def _checksum(kind, content):
    return struct.pack(">I", zlib.crc32(content, zlib.crc32(kind)))


def _header(content):
    if len(content) != 13:
        raise DamageError("IHDR of another length")
    header = Header(*struct.unpack(">IIBBBBB", content))
    depths = _DEPTHS.get(header.colour, (8, 16))
    ways = header.compression, header.filtering, header.interlace
    if (
        header.colour not in _SAMPLES
        or header.depth not in depths
        or ways not in ((0, 0, 0), (0, 0, 1))
        or min(header.width, header.height) == 0
    ):
        raise DamageError("unknown values in IHDR")
    bits = header.depth * _SAMPLES[header.colour]
    limits.check_photo_size(header.width, header.height, bits)
    return header


def _significant(header, content):
    bits = max(content[: 3 if header.colour in _COLOURS else 1], default=0)
    return bits if 1 <= bits <= 16 else None


def _unpacked(header, palette, stream):
    """Returns a PNG file of the pixels alone, whose data are stored and not packed.

    Raises:
        DamageError: the data do not end, or not with their checksum. Pillow would stop
            at the last row, libpng does not.
    """
    file = io.BytesIO()
    file.write(START + _header_chunk(header))
    if header.colour == _PALETTE:
        file.write(palette)
    place = file.tell()
    file.write(b"\0\0\0\0IDAT\x78\x01")
    for block in _blocks(header, stream):
        file.write(struct.pack("<BHH", 0, len(block), len(block) ^ 0xFFFF))
        file.write(block)
    end = file.tell()
    file.write(b"\0\0\0\0" + _chunk(b"IEND", b""))  # nobody reads this checksum
    file.seek(place)
    file.write(struct.pack(">I", end - place - 8))
    return file


def _blocks(header, stream):
    """Yields the data of the pixels, at most of `_BLOCK` bytes each."""
    # Interlaced rows are short; libpng passes over what follows the last row.
    row = header.width * _SAMPLES[header.colour] * header.depth // 8 + 2
    left = 2 * header.height * row + _BLOCK
    unpacker = zlib.decompressobj()
    try:
        for content in stream:
            block = None
            while block is None or content or len(block) == _BLOCK:
                block = unpacker.decompress(content, _BLOCK)
                content = unpacker.unconsumed_tail
                yield block
                left -= len(block)
                if unpacker.eof or left < 0:
                    return
    except zlib.error as error:
        raise DamageError("its pixels are damaged") from error
    raise DamageError("its pixels are cut")


def _image(parts, **changes):
    """Opens the file of the parts, its header changed."""
    from PIL import Image

    parts.file.seek(_HEADER_PLACE)
    parts.file.write(_header_chunk(parts.header._replace(**changes)))
    parts.file.seek(0)
    return Image.open(parts.file, formats=["PNG"])


def _header_chunk(header):
    return _chunk(b"IHDR", struct.pack(">IIBBBBB", *header))


def _chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + _checksum(kind, content)


def _values(parts, bits):
    """Returns values of 16 bits, or their high bytes where these are all that counts.

    Of colours, Pillow decodes the high bytes alone.
    """
    colour = parts.header.colour
    if colour == _GRAY:
        return sixteen_bits.array(_image(parts))
    if colour == _GRAY_AND_ALPHA:
        # The same bytes as those of four samples of 8 bits.
        four = sixteen_bits.array(_image(parts, depth=8, colour=_RGBA))
        return sixteen_bits.joined(four[..., 0], four[..., 1])
    high = np.asarray(_image(parts).convert("RGB"))
    if sixteen_bits.are_high_bytes_enough(high, bits, parts.significant):
        return high
    low = _image(parts)
    # In the other order of bytes the low ones are the high ones.
    low.tile = [(*low.tile[0][:3], low.tile[0][3].replace("16B", "16L"))]
    return sixteen_bits.joined(high, np.asarray(low.convert("RGB")))
