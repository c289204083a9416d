"""Settings of transformers' image processors: which count, and what they mean."""

import json
import typing
import warnings

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


class Case(typing.NamedTuple):
    """Files beside a model of a type, and what transformers does with them.

    Attributes:
        settings: those of the preprocessor_config.json; None without that file.
        preparation: how photos come to the size, None: in another way.
        inputs: mean and deviation; None: as the settings say, or a half.
        model_type: the class of the processor follows from it where none is named.
        processor: the processor_config.json.
    """

    settings: dict | None
    preparation: str | None
    inputs: tuple | None = None
    model_type: str = "vit"
    processor: dict | None = None

    @property
    def mean_and_std(self):
        own = (MEAN, STD) if "image_mean" in str(self) else (HALF, HALF)
        return own if self.inputs is None else self.inputs


SHORTEST = {"shortest_edge": 256}
CROP = {"do_center_crop": True, "crop_size": 48}
OFFSET = {"rescale_offset": True, "rescale_factor": 1 / 127.5, "include_top": False}
UNIT = ((0,) * 3, (1,) * 3)
NULLS = dict.fromkeys(
    ("crop_size", "device", "disable_grouping", "do_center_crop", "do_convert_rgb",
     "input_data_format", "return_tensors", "crop_pct", "pad_size", "do_pad")
)  # fmt: skip
SMALL = named("ConvNext", size={"shortest_edge": 56})
ASPECT = named("ViT", size=64, default_to_square=False, **CROP)
NESTED = {"image_processor": named("CLIP", **OWN)}
TEXTS = {"processor_class": "X", "patch_size": 14}
# `test_transformers_does_the_same` compares these with transformers 5.24.
AS_TRANSFORMERS = {
    "vit": Case(named("ViT"), "squash bilinear"),
    "vit of a size": Case(named("ViT", size=40, resample=3), "squash bicubic"),
    "vit with a crop": Case(named("ViT", size=64, **CROP), "squash bilinear 0.75"),
    "fast": Case(OWN | named("CLIP", "Fast"), "crop bicubic"),
    "deit": Case(named("DeiT"), "squash bicubic 0.875"),
    "beit": Case(named("Beit"), "squash bicubic"),
    "clip": Case(named("CLIP"), "crop bicubic", CLIP),
    "bit": Case(named("Bit", size=SHORTEST), "crop bicubic 0.875", CLIP),
    "siglip": Case(named("Siglip"), "squash bicubic"),
    "default_to_square": Case(ASPECT, "crop bilinear 0.75"),
    "blip": Case(named("Blip"), "squash bicubic", CLIP),
    "pvt": Case(named("Pvt"), "squash bicubic", IMAGENET),
    "eomt": Case(named("Eomt", size=SQUARE), "squash bilinear", IMAGENET),
    "segformer": Case(named("Segformer"), "squash bilinear", IMAGENET),
    "convnext": Case(SMALL, "crop bicubic 0.875"),
    "large convnext": Case(named("ConvNext"), "squash bicubic"),
    "efficientnet": Case(
        named("EfficientNet", **OFFSET), "squash bicubic", ((0.75,) * 3, (0.25,) * 3)
    ),
    "dinov3": Case(named("DINOv3ViT"), "squash bilinear", IMAGENET),
    "tipsv2": Case(named("Tipsv2"), "squash bilinear", UNIT),
    # Without the name of a class, that of the type counts.
    "deit without a class": Case(OWN, "squash bicubic 0.875", model_type="deit"),
    "clip without a class": Case(OWN, "crop bicubic", model_type="clip"),
    "dinov2 without a class": Case(
        {"size": 64, "crop_size": 48}, "crop bicubic 0.75", CLIP, "dinov2"
    ),
    "of an extractor": Case(
        {"feature_extractor_type": "DeiTFeatureExtractor"}, "squash bicubic 0.875"
    ),
    # Settings that are nested count alone.
    "nested": Case(None, "crop bicubic", processor=NESTED),
    "null is nested": Case(
        named("DeiT"), "squash bicubic 0.875", processor={"image_processor": None}
    ),
    "a processor of texts": Case(OWN, "squash bilinear", processor=TEXTS),
    "both the same": Case(
        named("ViT", size=224, do_rescale=True),
        "squash bilinear",
        processor={"image_processor": named("ViT", size=SQUARE)},
    ),
}
MASKS = {"do_center_crop": False, "reduce_labels": False, "data_format": None}
OFF = {"do_flip_channel_order": False, "do_thumbnail": False, "rescale_offset": False}
SHORTER = {"size": {"shortest_edge": 248}, "do_center_crop": True, "resample": 1}
# Files on the hub have such settings, of versions 4.5 to 5.
PUBLISHED = {
    "beit's": Case(OWN | named("Beit", "Fast", **MASKS), "squash bicubic"),
    "chinese clip's": Case(
        OWN | named("ChineseCLIP", size=SQUARE, do_center_crop=False), "squash bicubic"
    ),
    "nulls": Case(OWN | NULLS | named("DINOv3ViT", "Fast"), "squash bilinear"),
    "lanczos": Case(OWN | SHORTER, "crop lanczos 0.9"),
    "siglip 2's": Case(OWN | named("Siglip2", max_num_patches=256), None),
    "what is off": Case(OWN | named("ViT", **OFF), "squash bilinear"),
    "numbers": Case(
        {"image_mean": 0.5, "image_std": 0.25}, "squash bilinear", (HALF, (0.25,) * 3)
    ),
    "four channels": Case(
        {"image_mean": 0.5, "image_std": [0.5] * 4},
        *("squash bilinear", ((0.5,) * 4, (0.5,) * 4)),
    ),
    "as they are": Case({"do_normalize": False}, "squash bilinear", UNIT),
    "as bytes": Case(
        {"do_normalize": False, "do_rescale": False},
        *("squash bilinear", ((0,) * 3, (1 / 255,) * 3)),
    ),
    "with a factor": Case(
        {"do_normalize": False, "rescale_factor": 2 / 255},
        *("squash bilinear", ((0,) * 3, HALF)),
    ),
    "with an offset": Case(
        named("EfficientNet", do_normalize=False, **OFFSET), "squash bicubic"
    ),
    "divided twice": Case(
        OWN | named("EfficientNet"), "squash bicubic", (MEAN, (0.16, 0.25, 0.36))
    ),
    "photos in a processor_config": Case(
        None, "squash bicubic", processor=named("ViT", resample=3, **OWN)
    ),
}
# Photos are fitted in a way that is not computed.
ANOTHER_WAY = {
    "no resize": Case(named("ViT", do_resize=False), None),
    "a side": Case(named("ViT", size=SHORTEST), None),
    "two sides": Case(named("ViT", size=SHORTEST | {"longest_edge": 500}), None),
    "a larger crop": Case(named("ViT", size=200, do_center_crop=True), None),
    "no crop": Case(named("CLIP", size=SHORTEST, do_center_crop=False), None, CLIP),
    "a crop of 480": Case(named("DeiT", size=SQUARE, crop_size=480), None),
    "a number": Case(named("Siglip", size=48), None),
    "of masks, padded": Case(named("Eomt", size=SQUARE, do_pad=True), None, IMAGENET),
    "of masks, in parts": Case(
        named("Eomt", "Fast", size=SQUARE, do_split_image=True), None, IMAGENET
    ),
}
ALL = AS_TRANSFORMERS | PUBLISHED | ANOTHER_WAY
PROCESSORS = {"vit": "ViT", "deit": "DeiT", "clip": "CLIP", "dinov2": "Bit"}


def write(folder, preprocessor=None, processor=None):
    folder.mkdir(exist_ok=True)
    for name, settings in ((PREPROCESSOR, preprocessor), (PROCESSOR, processor)):
        if settings is not None:
            (folder / name).write_text(json.dumps(settings))
    return folder


def read(folder, model_type="vit"):
    return image_processors.read(folder, IMAGENET, PROCESSORS[model_type])


@pytest.mark.parametrize("name", ALL)
def test_settings_mean_what_they_mean_in_transformers(tmp_path, name):
    case = ALL[name]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = read(write(tmp_path, case.settings, case.processor), case.model_type)
    assert np.shape(found[:2]) == np.shape(case.mean_and_std)
    np.testing.assert_allclose(found[:2], case.mean_and_std)
    way = case.preparation and f"transformers {case.preparation}"
    assert found.preparation == way
    assert len(seen) == (name in ANOTHER_WAY)
    assert all(f"{PREPROCESSOR} fits photos" in str(one.message) for one in seen)


def test_transformers_does_the_same(tmp_path, transformers):
    photo = np.random.default_rng(7).integers(0, 256, (90, 130, 3), "uint8")
    for name, case in AS_TRANSFORMERS.items():
        folder = write(tmp_path / name, case.settings, case.processor)
        settings = json.dumps({"model_type": case.model_type})
        (folder / "config.json").write_text(settings)
        ours = read(folder, case.model_type)
        expected = transformers(peer_models.processed_photo, folder, photo)
        image = fitted(photo, expected.shape[:2], ours.preparation) / 255
        image = (image - np.array(ours.mean)) / np.array(ours.std)
        # Without torchvision, and DINOv3 resizes without rounding.
        level = np.abs(image - expected) * np.array(ours.std) * 255
        assert level.max() < (2 if name in ("dinov3", "tipsv2") else 0.01), name


VIT = {"image_processor": named("ViT", **OWN)}
DIFFERENT = "say different things,"


@pytest.mark.parametrize(
    ("settings", "processor", "told"),
    [
        (named("ViT", do_normalize=False), VIT, f"{DIFFERENT} do_norm"),
        (named("ViT", resample=3, **OWN), VIT, f"{DIFFERENT} resample 3 and 2:"),
        (
            named("ViT"),
            named("ViT", **OWN),
            r"image_mean .* image_std .*: take the one",
        ),
        ({"feature_extractor_type": "My"}, None, "such as ViTImageProcessor"),
        (
            None,
            {"image_processor": [1]},
            r"image_processor of \[1\], which is no table",
        ),
        ({"image_mean": [0.5]}, None, "image_mean=.* and image_std="),
        ({"image_mean": [0.5] * 4}, None, "image_mean=.* and image_std="),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path, settings, processor, told
):
    with pytest.raises(zoo.CheckpointError, match=told):
        read(write(tmp_path, settings, processor))
