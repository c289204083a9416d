"""Every variant that timm and transformers have, whole, computes the same here.

The weights are random and the images have few patches, so that most of the time goes
into making the weights.
"""

import dataclasses
import gc
import pathlib
import tempfile

import peer_models
import pytest
from harness import numpy
from peer_models import IMAGENET, TIMM_NAMES, difference, photos

import zoo
from keras_vit import VARIANTS, VisionTransformer
from zoo.network import Semantics

pytestmark = pytest.mark.slow

# The largest difference as a fraction of the largest output. A ResNet of random weights
# makes more of each rounding: of R50+ViT-L/32, timm's own numbers in float32 are 3e-5
# from its numbers in float64.
TOLERANCE = 2e-5
RESNET_TOLERANCE = 1e-4
PATCHES = 3
CLASSES = 10
# Those that only timm has.
MORE = {
    "vit_small_patch8_224": dataclasses.replace(VARIANTS["ViT-S_16"], patch_size=8),
    "vit_large_patch14_224": dataclasses.replace(VARIANTS["ViT-L_16"], patch_size=14),
    "vit_base_patch16_gap_224": dataclasses.replace(VARIANTS["ViT-B_16"], num_heads=16),
}
DEIT = {
    "deit_tiny_patch16_224": "ViT-Ti_16",
    "deit_small_patch16_224": "ViT-S_16",
    "deit_base_patch16_224": "ViT-B_16",
}


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


def images_for(config):
    return photos(PATCHES * config.stride[0])


def in_timm(timm, path, config, name, **kwargs):
    """Makes timm write a whole model; returns images and its logits."""
    images = images_for(config)
    sizes = {"img_size": images.shape[1], "num_classes": CLASSES}
    return images, timm(peer_models.save_timm, path, images, name, **sizes, **kwargs)


@pytest.mark.parametrize("variant", TIMM_NAMES)
def test_timm(variant, timm, folder, check):
    path, config = folder / "a.safetensors", VARIANTS[variant]
    images, expected = in_timm(timm, path, config, TIMM_NAMES[variant])
    tolerance = RESNET_TOLERANCE if config.is_hybrid else TOLERANCE
    check(VisionTransformer(config, path), images, expected, tolerance)


@pytest.mark.parametrize("name", MORE)
def test_others_of_timm(name, timm, folder, check):
    path, config = folder / "a.safetensors", MORE[name]
    images, expected = in_timm(timm, path, config, name)
    pooling = "gap" if "gap" in name else "token"
    check(VisionTransformer(config, path, pooling=pooling), images, expected)


@pytest.mark.parametrize("name", DEIT)
def test_plain_deit(name, timm, folder, check):
    path, config = folder / "a.safetensors", VARIANTS[DEIT[name]]
    images, expected = in_timm(timm, path, config, name, inputs=IMAGENET)
    mean, std = IMAGENET
    said = Semantics("gelu", input_mean=mean, input_std=std)
    checkpoint = zoo.read(path, semantics=said)
    check(VisionTransformer(config, checkpoint), images, expected)


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
