"""Settings of transformers' image processors: which count, and what they mean."""

import json

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


def named(name, **settings):
    return {"image_processor_type": f"{name}ImageProcessor", **settings}


# Files of a model of a type, and what transformers 5.24 does with them: mean, deviation
# and preparation, which `test_transformers_does_the_same` compares with itself.
AS_TRANSFORMERS = {
    "vit": ("vit", {PREPROCESSOR: named("ViT")}, HALF, HALF, "squash bilinear"),
    "vit of a size": (
        *("vit", {PREPROCESSOR: named("ViT", size=40, resample=3, **OWN)}),
        *(MEAN, STD, "squash bicubic"),
    ),
    "vit with a crop": (
        "vit",
        {PREPROCESSOR: named("ViT", size=64, do_center_crop=True, crop_size=56)},
        *(HALF, HALF, "squash bilinear 0.875"),
    ),
    "fast": (
        "vit",
        {PREPROCESSOR: OWN | {"image_processor_type": "CLIPImageProcessorFast"}},
        *(MEAN, STD, "crop bicubic"),
    ),
    "deit": ("deit", {PREPROCESSOR: named("DeiT")}, HALF, HALF, "squash bicubic 0.875"),
    "beit": ("beit", {PREPROCESSOR: named("Beit")}, HALF, HALF, "squash bicubic"),
    "clip": ("clip", {PREPROCESSOR: named("CLIP")}, *CLIP, "crop bicubic"),
    "bit": (
        *("dinov2", {PREPROCESSOR: named("Bit", size={"shortest_edge": 256})}),
        *(*CLIP, "crop bicubic 0.875"),
    ),
    "siglip": ("siglip", {PREPROCESSOR: named("Siglip")}, HALF, HALF, "squash bicubic"),
    "siglip of a number": (
        *("siglip", {PREPROCESSOR: named("Siglip", size=48)}, HALF, HALF, None),
    ),
    "default_to_square": (
        "vit",
        {
            PREPROCESSOR: named(
                *("ViT",), size=64, default_to_square=False, do_center_crop=True,
                crop_size=48,
            )
        },
        *(HALF, HALF, "crop bilinear 0.75"),
    ),
    "blip": ("vit", {PREPROCESSOR: named("Blip")}, *CLIP, "squash bicubic"),
    "pvt": ("vit", {PREPROCESSOR: named("Pvt")}, *IMAGENET, "squash bicubic"),
    "segformer": (
        *("vit", {PREPROCESSOR: named("Segformer")}, *IMAGENET, "squash bilinear"),
    ),
    "convnext": (
        *("vit", {PREPROCESSOR: named("ConvNext", size={"shortest_edge": 56})}),
        *(HALF, HALF, "crop bicubic 0.875"),
    ),
    "large convnext": (
        *("vit", {PREPROCESSOR: named("ConvNext")}, HALF, HALF, "squash bicubic"),
    ),
    "efficientnet": (
        "vit",
        {PREPROCESSOR: named("EfficientNet", rescale_offset=True, include_top=False,
                             rescale_factor=1 / 127.5)},
        *((0.75,) * 3, (0.25,) * 3, "squash bicubic"),
    ),
    "dinov3": (
        *("dinov3_vit", {PREPROCESSOR: named("DINOv3ViT")}),
        *(*IMAGENET, "squash bilinear"),
    ),
    "tipsv2": (
        *("tipsv2", {PREPROCESSOR: named("Tipsv2")}),
        *((0,) * 3, (1,) * 3, "squash bilinear"),
    ),
    # Without the name of a class, that of the type counts.
    "deit without a class": (
        *("deit", {PREPROCESSOR: OWN}, MEAN, STD, "squash bicubic 0.875"),
    ),
    "clip without a class": ("clip", {PREPROCESSOR: OWN}, MEAN, STD, "crop bicubic"),
    "dinov2 without a class": ("dinov2", {PREPROCESSOR: {"size": 64, "crop_size": 48}},
                               *CLIP, "crop bicubic 0.75"),
    "of an extractor": (
        *("vit", {PREPROCESSOR: {"feature_extractor_type": "DeiTFeatureExtractor"}}),
        *(HALF, HALF, "squash bicubic 0.875"),
    ),
    # What is nested counts alone.
    "nested": (
        *("vit", {PROCESSOR: {"image_processor": named("CLIP", **OWN)}}),
        *(MEAN, STD, "crop bicubic"),
    ),
    "null is nested": (
        "vit",
        {PROCESSOR: {"image_processor": None}, PREPROCESSOR: named("DeiT")},
        *(HALF, HALF, "squash bicubic 0.875"),
    ),
    "a processor of texts": (
        "vit",
        {PROCESSOR: {"processor_class": "X", "patch_size": 14}, PREPROCESSOR: OWN},
        *(MEAN, STD, "squash bilinear"),
    ),
    "both the same": (
        "vit",
        {
            PROCESSOR: {"image_processor": named("ViT", size=SQUARE)},
            PREPROCESSOR: named("ViT", size=224, do_rescale=True),
        },
        *(HALF, HALF, "squash bilinear"),
    ),
}  # fmt: skip
PROCESSORS = {"vit": "ViT", "deit": "DeiT", "beit": "Beit", "clip": "CLIP",
              "dinov2": "Bit", "siglip": "Siglip", "dinov3_vit": "DINOv3ViT",
              "tipsv2": "Tipsv2"}  # fmt: skip


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, settings in files.items():
        (folder / name).write_text(json.dumps(settings))
    return folder


def read(folder, model_type="vit"):
    return image_processors.read(folder, IMAGENET, PROCESSORS[model_type])


@pytest.mark.parametrize("name", AS_TRANSFORMERS)
def test_settings_mean_what_they_mean_in_transformers(tmp_path, name):
    model_type, files, mean, std, preparation = AS_TRANSFORMERS[name]
    found = read(write(tmp_path, files), model_type)
    assert found.mean == pytest.approx(mean) and found.std == pytest.approx(std)
    assert found.preparation == (preparation and f"transformers {preparation}")


def test_transformers_does_the_same(tmp_path, request):
    run = request.getfixturevalue("transformers")
    photo = np.random.default_rng(7).integers(0, 256, (90, 130, 3), "uint8")
    folders, found = [], {}
    for name, (model_type, files, *_, preparation) in AS_TRANSFORMERS.items():
        if preparation is None:
            continue
        files = files | {"config.json": {"model_type": model_type}}
        folders.append(write(tmp_path / name, files))
        found[name] = read(folders[-1], model_type)
    for folder, expected in zip(
        folders, run(peer_models.processed_photos, folders, photo), strict=True
    ):
        ours = found[folder.name]
        image = fitted(photo, expected.shape[:2], ours.preparation) / 255
        image = (image - np.array(ours.mean)) / np.array(ours.std)
        # Without torchvision, and DINOv3 resizes without rounding.
        level = np.abs(image - expected) * np.array(ours.std) * 255
        assert level.max() < (2 if folder.name in ("dinov3", "tipsv2") else 0.01), (
            folder
        )


ALL = {"do_normalize": True, "do_resize": True, **OWN}
SHORTEST = {"shortest_edge": 256}
NULLS = dict.fromkeys(
    ("crop_size", "device", "disable_grouping", "do_center_crop", "do_convert_rgb",
     "input_data_format", "return_tensors", "crop_pct", "pad_size", "do_pad")
)  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "preparation"),
    [
        # As on the hub, of versions 4.5 to 5.
        (ALL | {"size": 224}, "squash bilinear"),
        (ALL | {"image_processor_type": "ViTFeatureExtractor"}, "squash bilinear"),
        (
            ALL
            | {"feature_extractor_type": "DeiTFeatureExtractor", "size": 256}
            | {"crop_size": 224, "do_center_crop": True, "resample": 3},
            "squash bicubic 0.875",
        ),
        (
            ALL
            | {"feature_extractor_type": "BeitFeatureExtractor", "size": 224}
            | {"crop_size": 224, "do_center_crop": False, "resample": 2}
            | {"reduce_labels": False},
            "squash bilinear",
        ),
        (
            ALL
            | {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224}
            | {"crop_size": 224, "do_center_crop": True, "resample": 3},
            "crop bicubic",
        ),
        (
            ALL
            | named("Bit", size=SHORTEST, crop_size=SQUARE, do_center_crop=True)
            | {"do_convert_rgb": True, "do_rescale": True, "resample": 3},
            "crop bicubic 0.875",
        ),
        (
            ALL | named("ChineseCLIP", size=SQUARE, do_center_crop=False),
            "squash bicubic",
        ),
        (
            ALL
            | NULLS
            | {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": SQUARE}
            | {"data_format": "channels_first", "default_to_square": True},
            "squash bilinear",
        ),
        (
            ALL | named("Siglip", size=SQUARE, processor_class="SiglipProcessor"),
            "squash bicubic",
        ),
        (ALL | {"resample": 3}, "squash bicubic"),
        (
            ALL
            | {"size": {"shortest_edge": 248}, "do_center_crop": True, "resample": 1}
            | {"crop_size": SQUARE},
            "crop lanczos 0.9",
        ),
        (
            ALL | named("ConvNext", size={"shortest_edge": 224}, crop_pct=0.875),
            "crop bicubic 0.875",
        ),
        (ALL | named("Siglip2", max_num_patches=256, patch_size=16) | NULLS, None),
        (ALL | named("Siglip2", max_num_patches=256, size=SQUARE), None),
        (
            ALL | named("ViT", size=SQUARE, do_thumbnail=False, do_pad=False)
            | {"_valid_processor_keys": ["images", "do_resize"]},
            "squash bilinear",
        ),
    ],
)  # fmt: skip
def test_published_settings_are_read(tmp_path, settings, preparation):
    found = read(write(tmp_path, {PREPROCESSOR: settings}))
    assert (found.mean, found.std) == (MEAN, STD)
    assert found.preparation == (preparation and f"transformers {preparation}")


@pytest.mark.parametrize(
    ("settings", "mean", "std"),
    [
        ({"image_mean": 0.5, "image_std": 0.25}, (0.5,) * 3, (0.25,) * 3),
        ({"do_normalize": False}, (0, 0, 0), (1, 1, 1)),
        ({"do_normalize": False, "do_rescale": False}, (0,) * 3, (1 / 255,) * 3),
        ({"do_normalize": False, "rescale_factor": 2 / 255}, (0,) * 3, (0.5,) * 3),
        (
            named("EfficientNet", do_normalize=False, include_top=False)
            | {"rescale_offset": True, "rescale_factor": 1 / 127.5},
            *((0.5,) * 3, (0.5,) * 3),
        ),
        (named("EfficientNet"), MEAN, (0.16, 0.25, 0.36)),
        # They are off, or of other things.
        ({"do_flip_channel_order": False, "do_pad": None}, MEAN, STD),
        ({"rescale_offset": False, "do_convert_rgb": True}, MEAN, STD),
    ],
)
def test_mean_and_deviation_are_those_of_the_processor(tmp_path, settings, mean, std):
    found = read(write(tmp_path, {PREPROCESSOR: named("ViT", **OWN) | settings}))
    assert found.mean == pytest.approx(mean) and found.std == pytest.approx(std)


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
        assert read(write(tmp_path, {PREPROCESSOR: settings})).preparation is None


def test_nested_settings_are_not_completed_by_the_other_file(tmp_path):
    nested = {"image_processor": named("ViT", **OWN)}
    write(tmp_path, {PROCESSOR: nested, PREPROCESSOR: named("ViT", **OWN)})
    assert read(tmp_path).mean == MEAN
    write(tmp_path, {PREPROCESSOR: named("ViT", do_normalize=False)})
    with pytest.raises(zoo.CheckpointError, match="say different things of do_norm"):
        read(tmp_path)
    write(tmp_path, {PREPROCESSOR: named("ViT", size=224, resample=3, **OWN)})
    with pytest.raises(zoo.CheckpointError, match="say different things of resample:"):
        read(tmp_path)


def test_a_processor_config_with_fields_of_photos_is_read_or_compared(tmp_path):
    write(tmp_path, {PROCESSOR: named("ViT", resample=3, **OWN)})
    found = read(tmp_path)
    assert (found.mean, found.std) == (MEAN, STD)
    assert found.preparation == "transformers squash bicubic"
    write(tmp_path, {PREPROCESSOR: named("ViT", resample=3)})
    with pytest.raises(zoo.CheckpointError, match="image_mean, image_std: remove"):
        read(tmp_path)


def test_a_class_that_nobody_knows_is_refused(tmp_path):
    write(tmp_path, {PREPROCESSOR: OWN | {"feature_extractor_type": "MyExtractor"}})
    with pytest.raises(zoo.CheckpointError, match="such as ViTImageProcessor"):
        read(tmp_path)


def test_mean_and_deviation_of_different_channels_are_refused(tmp_path):
    for mean, std in (([0.5], [0.5] * 3), ([0.5] * 4, [0.5] * 3)):
        write(tmp_path, {PREPROCESSOR: {"image_mean": mean, "image_std": std}})
        with pytest.raises(zoo.CheckpointError, match="image_mean=.* and image_std="):
            read(tmp_path)
    write(tmp_path, {PREPROCESSOR: {"image_mean": 0.5, "image_std": [0.5] * 4}})
    assert read(tmp_path).mean == (0.5,) * 4
