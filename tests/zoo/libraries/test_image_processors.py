"""Settings of transformers' image processors: which count, and what they mean."""

import json
import typing

import numpy as np
import peer_models
import pytest

import zoo
from zoo.libraries import image_processors
from zoo.photos import fitted

HALF = (0.5, 0.5, 0.5)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
OWN = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
SQUARE = {"height": 224, "width": 224}
MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
PREPROCESSOR, PROCESSOR = image_processors.FILES


def named(name, ending="", **settings):
    return {"image_processor_type": f"{name}ImageProcessor{ending}", **settings}


OWN_INPUTS = (MEAN, STD)
HALVES = (HALF, HALF)


class Case(typing.NamedTuple):
    """Files beside a model of a type, and what transformers does with them.

    Attributes:
        settings: those of the preprocessor_config.json; None without that file.
        preparation: how photos come to the size, None: in another way.
        inputs: mean and deviation.
        model_type: the class of the processor follows from it where none is named.
        processor: the processor_config.json.
    """

    settings: dict | None
    preparation: str | None
    inputs: tuple = HALVES
    model_type: str = "vit"
    processor: dict | None = None


EFFICIENTNET = {"rescale_offset": True, "rescale_factor": 1 / 127.5}
ALL = {"do_normalize": True, "do_resize": True, **OWN}
SHORTEST = {"shortest_edge": 256}
CROP = {"do_center_crop": True, "crop_size": 48}
NULLS = dict.fromkeys(
    ("crop_size", "device", "disable_grouping", "do_center_crop", "do_convert_rgb",
     "input_data_format", "return_tensors", "crop_pct", "pad_size", "do_pad")
)  # fmt: skip
# What transformers 5.24 does, which `test_transformers_does_the_same` compares.
AS_TRANSFORMERS = {
    "vit": Case(named("ViT"), "squash bilinear"),
    "vit of a size": Case(named("ViT", size=40, resample=3), "squash bicubic"),
    "vit with a crop": Case(named("ViT", size=64, **CROP), "squash bilinear 0.75"),
    "fast": Case(OWN | named("CLIP", "Fast"), "crop bicubic", OWN_INPUTS),
    "deit": Case(named("DeiT"), "squash bicubic 0.875"),
    "beit": Case(named("Beit"), "squash bicubic"),
    "clip": Case(named("CLIP"), "crop bicubic", CLIP),
    "bit": Case(named("Bit", size=SHORTEST), "crop bicubic 0.875", CLIP),
    "siglip": Case(named("Siglip"), "squash bicubic"),
    "siglip of a number": Case(named("Siglip", size=48), None),
    "default_to_square": Case(
        named("ViT", size=64, default_to_square=False, **CROP), "crop bilinear 0.75"
    ),
    "blip": Case(named("Blip"), "squash bicubic", CLIP),
    "pvt": Case(named("Pvt"), "squash bicubic", IMAGENET),
    "segformer": Case(named("Segformer"), "squash bilinear", IMAGENET),
    "convnext": Case(
        named("ConvNext", size={"shortest_edge": 56}), "crop bicubic 0.875"
    ),
    "large convnext": Case(named("ConvNext"), "squash bicubic"),
    "efficientnet": Case(
        named("EfficientNet", include_top=False, **EFFICIENTNET),
        "squash bicubic",
        ((0.75,) * 3, (0.25,) * 3),
    ),
    "dinov3": Case(named("DINOv3ViT"), "squash bilinear", IMAGENET),
    "tipsv2": Case(named("Tipsv2"), "squash bilinear", ((0,) * 3, (1,) * 3)),
    # Without the name of a class, that of the type counts.
    "deit without a class": Case(OWN, "squash bicubic 0.875", OWN_INPUTS, "deit"),
    "clip without a class": Case(OWN, "crop bicubic", OWN_INPUTS, "clip"),
    "dinov2 without a class": Case(
        {"size": 64, "crop_size": 48}, "crop bicubic 0.75", CLIP, "dinov2"
    ),
    "of an extractor": Case(
        {"feature_extractor_type": "DeiTFeatureExtractor"}, "squash bicubic 0.875"
    ),
    # What is nested counts alone.
    "nested": Case(
        *(None, "crop bicubic", OWN_INPUTS),
        processor={"image_processor": named("CLIP", **OWN)},
    ),
    "null is nested": Case(
        named("DeiT"), "squash bicubic 0.875", processor={"image_processor": None}
    ),
    "a processor of texts": Case(
        *(OWN, "squash bilinear", OWN_INPUTS),
        processor={"processor_class": "X", "patch_size": 14},
    ),
    "both the same": Case(
        named("ViT", size=224, do_rescale=True),
        "squash bilinear",
        processor={"image_processor": named("ViT", size=SQUARE)},
    ),
}
# As on the hub, of versions 4.5 to 5.
PUBLISHED = {
    "an extractor": Case(
        ALL | CROP | {"feature_extractor_type": "ViTFeatureExtractor", "size": 64},
        "squash bilinear 0.75",
        OWN_INPUTS,
    ),
    "an extractor of CLIP": Case(
        ALL | {"feature_extractor_type": "CLIPFeatureExtractor", "crop_size": 224},
        "crop bicubic",
        OWN_INPUTS,
    ),
    "masks": Case(
        ALL
        | {"feature_extractor_type": "BeitFeatureExtractor", "reduce_labels": False}
        | {"size": 224, "crop_size": 224, "do_center_crop": False, "resample": 2},
        "squash bilinear",
        OWN_INPUTS,
    ),
    "chinese clip": Case(
        ALL | named("ChineseCLIP", size=SQUARE, do_center_crop=False),
        "squash bicubic",
        OWN_INPUTS,
    ),
    "nulls": Case(
        ALL | NULLS | named("DINOv3ViT", "Fast", data_format="channels_first"),
        "squash bilinear",
        OWN_INPUTS,
    ),
    "lanczos": Case(
        ALL | {"size": {"shortest_edge": 248}, "do_center_crop": True, "resample": 1},
        "crop lanczos 0.9",
        OWN_INPUTS,
    ),
    "siglip 2": Case(
        ALL | NULLS | named("Siglip2", max_num_patches=256, patch_size=16),
        None,
        OWN_INPUTS,
    ),
    "off": Case(
        ALL
        | named("ViT", do_thumbnail=False, do_pad=None, do_flip_channel_order=False)
        | {"rescale_offset": False, "_valid_processor_keys": ["images", "do_resize"]},
        "squash bilinear",
        OWN_INPUTS,
    ),
    "numbers": Case(
        {"image_mean": 0.5, "image_std": 0.25},
        "squash bilinear",
        (HALF, (0.25,) * 3),
    ),
    "of four channels": Case(
        {"image_mean": 0.5, "image_std": [0.5] * 4},
        "squash bilinear",
        ((0.5,) * 4, (0.5,) * 4),
    ),
    "as they are": Case(
        {"do_normalize": False}, "squash bilinear", ((0,) * 3, (1,) * 3)
    ),
    "as bytes": Case(
        {"do_normalize": False, "do_rescale": False},
        "squash bilinear",
        ((0,) * 3, (1 / 255,) * 3),
    ),
    "with a factor": Case(
        {"do_normalize": False, "rescale_factor": 2 / 255},
        "squash bilinear",
        ((0,) * 3, HALF),
    ),
    "with an offset": Case(
        named("EfficientNet", include_top=False, do_normalize=False, **EFFICIENTNET),
        "squash bicubic",
    ),
    "divided twice": Case(
        OWN | named("EfficientNet"), "squash bicubic", (MEAN, (0.16, 0.25, 0.36))
    ),
    "fields of photos in a processor_config": Case(
        *(None, "squash bicubic", OWN_INPUTS),
        processor=named("ViT", resample=3, **OWN),
    ),
}
PROCESSORS = {"vit": "ViT", "deit": "DeiT", "clip": "CLIP", "dinov2": "Bit"}


def write(folder, preprocessor=None, processor=None):
    folder.mkdir(exist_ok=True)
    for name, settings in ((PREPROCESSOR, preprocessor), (PROCESSOR, processor)):
        if settings is not None:
            (folder / name).write_text(json.dumps(settings))
    return folder


def read(folder, model_type="vit"):
    return image_processors.read(folder, IMAGENET, PROCESSORS[model_type])


@pytest.mark.parametrize("name", [*AS_TRANSFORMERS, *PUBLISHED])
def test_settings_mean_what_they_mean_in_transformers(tmp_path, name):
    case = (AS_TRANSFORMERS | PUBLISHED)[name]
    found = read(write(tmp_path, case.settings, case.processor), case.model_type)
    assert np.shape(found[:2]) == np.shape(case.inputs)
    np.testing.assert_allclose(found[:2], case.inputs)
    assert found.preparation == (
        case.preparation and f"transformers {case.preparation}"
    )


def test_transformers_does_the_same(tmp_path, transformers):
    photo = np.random.default_rng(7).integers(0, 256, (90, 130, 3), "uint8")
    folders, found = [], {}
    for name, case in AS_TRANSFORMERS.items():
        if case.preparation is None:
            continue
        folders.append(write(tmp_path / name, case.settings, case.processor))
        settings = json.dumps({"model_type": case.model_type})
        (folders[-1] / "config.json").write_text(settings)
        found[name] = read(folders[-1], case.model_type)
    for folder, expected in zip(
        folders, transformers(peer_models.processed_photos, folders, photo), strict=True
    ):
        ours = found[folder.name]
        image = fitted(photo, expected.shape[:2], ours.preparation) / 255
        image = (image - np.array(ours.mean)) / np.array(ours.std)
        # Without torchvision, and DINOv3 resizes without rounding.
        level = np.abs(image - expected) * np.array(ours.std) * 255
        most = 2 if folder.name in ("dinov3", "tipsv2") else 0.01
        assert level.max() < most, folder


@pytest.mark.parametrize(
    "settings",
    [
        named("ViT", do_resize=False),
        named("ViT", size=SHORTEST),
        named("ViT", size=SHORTEST | {"longest_edge": 500}),
        named("ViT", size=200, do_center_crop=True),
        named("CLIP", size=SHORTEST, do_center_crop=False),
        named("DeiT", size=SQUARE, crop_size={"height": 480, "width": 480}),
    ],
)
def test_photos_that_are_fitted_in_another_way_are_named(tmp_path, settings):
    with pytest.warns(UserWarning, match=f"{PREPROCESSOR} fits photos .* squashed"):
        assert read(write(tmp_path, settings)).preparation is None


NESTED = {"image_processor": named("ViT", **OWN)}
DIFFERENT = "say different things of"


@pytest.mark.parametrize(
    ("settings", "processor", "told"),
    [
        (named("ViT", do_normalize=False), NESTED, f"{DIFFERENT} do_norm"),
        (named("ViT", resample=3, **OWN), NESTED, f"{DIFFERENT} resample:"),
        (named("ViT"), named("ViT", **OWN), "image_mean, image_std: remove"),
        ({"feature_extractor_type": "My"}, None, "such as ViTImageProcessor"),
        ({"image_mean": [0.5]}, None, "image_mean=.* and image_std="),
        ({"image_mean": [0.5] * 4}, None, "image_mean=.* and image_std="),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path, settings, processor, told
):
    with pytest.raises(zoo.CheckpointError, match=told):
        read(write(tmp_path, settings, processor))
