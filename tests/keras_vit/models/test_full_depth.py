"""Every network that timm and transformers have, whole, computes the same here.

The weights are random and the images have few patches, so that most of the time goes
into making the weights.
"""

import gc
import pathlib
import re
import tempfile

import numpy as np
import peer_models
import pytest
from harness import numpy
from peer_models import TIMM_NAMES, difference, photos

import zoo
from keras_vit import VARIANTS, VisionTransformer, load_model
from zoo.catalog import families

pytestmark = pytest.mark.slow

# The largest difference as a fraction of the largest output. A ResNet of random weights
# makes more of each rounding: of R50+ViT-L/32, timm's own numbers in float32 are 3e-5
# from its numbers in float64.
TOLERANCE = 2e-5
RESNET_TOLERANCE = 1e-4
# Norms after branches divide by small deviations: timm's own numbers in float32 are
# 2e-5 from those in float64, and ours in float64 are 1e-6 from these.
TOLERANCES = {"vit_base_patch16_rpn_224": 1e-4}
PATCHES = 3
CLASSES = 10
# One network of each size of other families.
FAMILIES = pathlib.Path(__file__).with_name("timm_networks.txt").read_text().split()
# The catalogue's: at full width, two blocks of each.
ARCHITECTURES = sorted({card.architecture for card in families.MODELS.values()})


@pytest.fixture(scope="module")
def seen():
    """The differences so far; the largest is printed."""
    found = []
    yield found
    print(f"\nlargest difference of {len(found)}: {max(found, default=0):.1e}")


@pytest.fixture
def folder():
    """Not `tmp_path`, which would keep twenty gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)
    gc.collect()


@pytest.fixture
def check(seen):
    def check(model, images, expected, tolerance=TOLERANCE):
        gap = difference(numpy(model(2 * images - 1)), expected)
        print(f"largest difference {gap:.1e} of the largest output")
        seen.append(gap)
        assert gap < tolerance

    return check


def side_for(name):
    patch = re.search(r"patch(\d+)", name)
    return PATCHES * (int(patch[1]) if patch else 16)


def images_for(config):
    return photos(PATCHES * config.stride[0])


@pytest.mark.parametrize("variant", TIMM_NAMES)
def test_timm(variant, timm, folder, check):
    path, config = folder / "a.safetensors", VARIANTS[variant]
    images = images_for(config)
    sizes = {"img_size": images.shape[1], "num_classes": CLASSES}
    name = TIMM_NAMES[variant]
    expected = timm(peer_models.save_timm, path, images, name, **sizes)
    tolerance = RESNET_TOLERANCE if config.is_hybrid else TOLERANCE
    check(VisionTransformer(config, path), images, expected, tolerance)


@pytest.mark.parametrize("name", ["vit_small_r26_s32_224", "vit_base_r50_s16_224"])
def test_hybrids_of_images_that_are_not_square(name, timm, folder, check):
    images = photos((96, 64))
    sizes = {"img_size": images.shape[1:3], "num_classes": CLASSES, "depth": 2}
    expected = timm(peer_models.save_timm_family, folder, images, name, **sizes)
    model = load_model(folder)
    assert model.input_shape[1:3] == images.shape[1:3]
    check(model, images, expected, RESNET_TOLERANCE)


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name, timm, folder, check):
    side = side_for(name)
    images = photos(side)
    sizes = {"img_size": side, "num_classes": CLASSES}
    expected = timm(peer_models.save_timm_family, folder, images, name, **sizes)
    tolerance = TOLERANCES.get(name, TOLERANCE)
    check(load_model(folder), images, expected, tolerance)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_networks_of_the_catalogue(name, timm, folder, check):
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


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ViTModel"])
@pytest.mark.parametrize("variant", peer_models.PLAIN)
def test_transformers(variant, kind, transformers, folder, check):
    config = VARIANTS[variant]
    images = images_for(config)
    expected = transformers(
        peer_models.save_transformers,
        folder,
        images,
        kind,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_dim,
        patch_size=config.patch_size,
        image_size=images.shape[1],
        num_labels=CLASSES,
    )
    without_head = {"include_top": False, "representation_size": config.hidden_size}
    kwargs = without_head if kind == "ViTModel" else {}
    check(VisionTransformer(config, folder, **kwargs), images, expected)
