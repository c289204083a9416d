"""The size of a photo as its header and its EXIF have it."""

import numpy as np
import pytest
from PIL import Image

from zoo import photos
from zoo.photos.headers import upright_size


@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp", "bmp", "gif"])
@pytest.mark.parametrize("turn", [None, 1, 3, 5, 6, 8])
def test_the_size_is_that_of_the_decoded_photo(turn, ending, tmp_path):
    path, settings = tmp_path / f"photo.{ending}", {}
    if turn is not None:
        settings["exif"] = Image.Exif()
        settings["exif"][274] = turn
    pixels = np.random.RandomState(0).randint(0, 256, (5, 8, 3), "uint8")
    Image.fromarray(pixels).save(path, **settings)
    assert upright_size(path) == photos.decode(path).shape[:2]
    is_turned = turn in (5, 6, 8) and ending not in ("bmp", "gif")
    assert upright_size(path) == ((8, 5) if is_turned else (5, 8))


def test_png_of_16_bits_with_its_exif_behind_the_pixels_has_a_size(tmp_path):
    from zoo.photos import png

    path = tmp_path / "photo.png"
    Image.fromarray(np.full((2, 3), 9000, "uint16")).save(path)
    content = path.read_bytes()
    exif = Image.Exif()
    exif[274] = 8
    chunk = png._chunk(b"eXIf", exif.tobytes()[6:])
    path.write_bytes(content[:-12] + chunk + content[-12:])
    assert upright_size(path) == photos.decode(path).shape[:2] == (3, 2)
