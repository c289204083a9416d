"""What the tests of evaluation share: photos, and figures that are not drawn."""

import functools

import numpy as np
import pytest
from evaluated import COLOURS
from PIL import Image

from train.reports import figures
from train.scoring import predicting


@pytest.fixture(scope="module", autouse=True)
def in_short():
    """Figures are not drawn, and the throughput is that of three batches."""
    shortly = functools.partial(predicting.images_per_second, seconds=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicting, "images_per_second", shortly)
        patch.setattr(figures, "save", lambda figure, path: path.touch())
        yield


@pytest.fixture
def photos(tmp_path):
    """Photos of odd sizes in three classes."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 3), ("test", 5)):
        for name, colour in COLOURS.items():
            folder = tmp_path / "photos" / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                noise = rng.integers(-20, 20, (30 + index, 61, 3))
                image = Image.fromarray((noise + colour).astype("uint8"))
                image.save(folder / f"{index}.png")
    return tmp_path / "photos"
