"""Networks of timm at their width, of random weights, compute the same here.

The images have few patches, so that most of the time goes into making the weights.
"""

import gc
import pathlib
import re
import tempfile

import numpy as np
import peer_models
import pytest
from harness import numpy
from peer_models import difference, photos

import zoo
from keras_vit import load_model
from zoo.catalog import families

pytestmark = pytest.mark.slow

# The largest difference as a fraction of the largest output.
TOLERANCE = 2e-5
# Norms after branches divide by small deviations: timm's own numbers in float32 are
# 2e-5 from those in float64, and ours in float64 are 1e-6 from these.
# A whole ResNet of random weights makes more of each rounding.
LESS_EXACT = re.compile("_rpn_|_r[0-9]+_")
PATCHES = 3
CLASSES = 10
# One network of each size of each family, at its full depth.
FAMILIES = pathlib.Path(__file__).with_name("timm_networks.txt").read_text().split()
# The catalogue's: at full width, two blocks of each.
ARCHITECTURES = sorted({card.architecture for card in families.MODELS.values()})


@pytest.fixture
def folder():
    """Not `tmp_path`, which would keep twenty gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)
    gc.collect()


def check(model, images, expected, tolerance=TOLERANCE):
    gap = difference(numpy(model(2 * images - 1)), expected)
    print(f"largest difference {gap:.1e} of the largest output")
    assert gap < tolerance


def side_for(name):
    patch = re.search(r"(?:patch|_s)(\d+)", name)
    return PATCHES * (int(patch[1]) if patch else 16)


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name, timm, folder):
    side = side_for(name)
    images = photos(side)
    sizes = {"img_size": side, "num_classes": CLASSES}
    expected = timm(peer_models.save_timm_family, folder, images, name, **sizes)
    tolerance = 1e-4 if LESS_EXACT.search(name) else TOLERANCE
    check(load_model(folder), images, expected, tolerance)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_networks_of_the_catalogue(name, timm, folder):
    side = side_for(name)
    images, options = photos(side), {"image_size": side}
    sizes = {"img_size": side, "num_classes": CLASSES, "depth": 2}
    if name.startswith("naflex"):
        sizes["pos_embed_grid_size"] = (PATCHES, PATCHES)
        del sizes["img_size"]
    if "dinov3" in name:
        sizes["num_classes"], options["include_top"] = 0, False
    expected = timm(peer_models.save_timm_family, folder, images, name, **sizes)
    check(load_model(folder, **options), images, expected)
    # Written back it is timm's to the bit.
    zoo.write(folder / "model.safetensors", zoo.read(folder), naming="timm")
    again = timm(peer_models.load_timm_folder, folder, images)
    np.testing.assert_array_equal(again, expected)
