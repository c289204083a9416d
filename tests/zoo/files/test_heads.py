"""What settings beside a file say of its outputs, and how photos come to the model."""

import dataclasses
import json
import pathlib
import shutil

import pytest

import zoo
from zoo.catalog import labels
from zoo.catalog.locate import with_names
from zoo.files import description, image_processors
from zoo.head import Head

CASES = pathlib.Path(__file__).parents[2] / "cases"
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.4, 0.5, 0.6],
}


@pytest.fixture
def changed(tmp_path):
    """Returns a function that copies a case with other settings; None removes one."""

    def make(case, name="config.json", **settings):
        folder = tmp_path / case
        if not folder.exists():
            shutil.copytree(CASES / case, folder)
        file = folder / name
        found = json.loads(file.read_text()) if file.exists() else {}
        found |= settings
        found = {key: value for key, value in found.items() if value is not ...}
        file.write_text(json.dumps(found))
        return folder

    return make


def names(folder):
    return zoo.read(folder).head.class_names


def test_id2label_has_the_names_of_the_outputs():
    assert names(CASES / "own_names_of_3") == ("cat", "dog", "elk")
    found = names(CASES / "own_names_of_1000")
    assert len(found) == 1000 and found[:2] == ("product 0", "product 1")


def test_numbers_of_id2label_may_have_any_order(changed):
    labels = {"2": "elk, or moose", "0": "cat", "1": "dog"}
    folder = changed("own_names_of_3", id2label=labels, label2id=...)
    assert names(folder) == ("cat", "dog", "elk, or moose")


def test_placeholders_are_no_names(changed):
    labels = {str(number): f"LABEL_{number}" for number in range(3)}
    assert names(changed("own_names_of_3", id2label=labels, label2id=...)) is None
    assert names(changed("own_names_of_3", id2label=..., label2id=...)) is None


def test_label2id_alone_has_names_too(changed):
    folder = changed(
        "own_names_of_3", id2label=..., label2id={"b": "1", "a": 0, "c": 2}
    )
    assert names(folder) == ("a", "b", "c")


def test_a_label2id_that_is_right_is_passed(changed):
    for numbers in ({"cat": "0", "dog": "1"}, {"LABEL_2": 2}, {}, None):
        assert names(changed("own_names_of_3", label2id=numbers)) == (
            "cat",
            "dog",
            "elk",
        )
    numbers = {"elk": "2", "dog": 1, "cat": 0}
    folder = changed("own_names_of_3", id2label=None, label2id=numbers)
    assert names(folder) == ("cat", "dog", "elk")


def test_problem_type_is_read():
    assert zoo.read(CASES / "several_labels").head.problem_type == (
        "multi_label_classification"
    )
    assert zoo.read(CASES / "one_number").head.problem_type == "regression"
    assert zoo.read(CASES / "own_names_of_3").head.problem_type is None


def test_a_new_head_forgets_names_and_problem_type():
    without = zoo.read(CASES / "several_labels").without_head()
    assert without.head.class_names is None and without.head.problem_type is None


@pytest.mark.parametrize("said", [["a", "b", "c"], {"1": "b", "0": "a", "2": "c"}])
@pytest.mark.parametrize("inside", [True, False])
def test_label_names_of_timm_are_a_list_or_a_table(changed, said, inside):
    case = "timm_label_names"
    inner = json.loads((CASES / case / "config.json").read_text())["pretrained_cfg"]
    settings = {"label_names": ..., "pretrained_cfg": inner | {"label_names": said}}
    folder = changed(case, **(settings if inside else {"label_names": said}))
    assert names(folder) == ("a", "b", "c")


def test_a_wrapped_timm_model_has_the_settings_of_transformers(changed):
    labels = {"0": "left", "1": "middle", "2": "right"}
    folder = changed(
        "timm_label_names",
        label_names=...,
        id2label=labels,
        label2id={name: int(number) for number, name in labels.items()},
        problem_type="multi_label_classification",
    )
    head = zoo.read(folder).head
    assert head.class_names == ("left", "middle", "right")
    assert head.problem_type == "multi_label_classification"
    changed("timm_label_names", label_names=["right", "middle", "left"])
    with pytest.raises(zoo.CheckpointError, match="id2label of other names"):
        zoo.read(folder)


def test_timm_descriptions_of_ids_are_the_names(changed):
    ids = ["n01440764", "n01443537", "n01484850"]
    about = dict(zip(ids, ["tench", "goldfish", "shark"], strict=True))
    settings = {"label_names": ids, "label_descriptions": about}
    folder = changed("timm_label_names", **settings)
    assert names(folder) == ("tench", "goldfish", "shark")
    # Those of names are longer texts about them.
    about = {"red": "of blood", "green": "of grass", "blue": "of the sky"}
    folder = changed("timm_label_names", label_names=[*about], label_descriptions=about)
    assert names(folder) == ("red", "green", "blue")


@pytest.mark.parametrize("naming", ["released", "transformers", "timm"])
@pytest.mark.parametrize("case", ["own_names_of_3", "timm_label_names"])
def test_names_are_written_back(tmp_path, case, naming):
    checkpoint = zoo.read(CASES / case)
    if naming == "timm":
        timm = zoo.ViTConfig(layer_norm_epsilon=1e-6)
        zoo.write(tmp_path / "model.safetensors", checkpoint, naming=naming,
                  semantics=timm)  # fmt: skip
    else:
        zoo.write(tmp_path / "model.safetensors", checkpoint, naming=naming)
    expected = checkpoint.head.class_names
    assert names(tmp_path / "model.safetensors") == expected
    if naming == "transformers":
        config = json.loads((tmp_path / "config.json").read_text())
        assert [*config["id2label"].values()] == [*expected]
        assert config["label2id"] == {name: at for at, name in enumerate(expected)}
    if naming == "timm":
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["label_names"] == [*expected]


def test_names_corrected_beside_a_file_of_ours_are_read(tmp_path):
    checkpoint = zoo.read(CASES / "own_names_of_3")
    zoo.write(tmp_path / "model.safetensors", checkpoint, naming="transformers")
    file = tmp_path / "config.json"
    config = json.loads(file.read_text()) | {"id2label": {"0": "a", "1": "b", "2": "c"}}
    del config["label2id"]
    file.write_text(json.dumps(config))
    assert names(tmp_path) == ("a", "b", "c")


def test_problem_types_are_written_back_or_refused(tmp_path):
    checkpoint = zoo.read(CASES / "several_labels")
    file = tmp_path / "model.safetensors"
    for naming in ("released", "transformers"):
        zoo.write(file, checkpoint, naming=naming)
        assert zoo.read(file).head == checkpoint.head
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    for path, naming in ((tmp_path / "x.npz", "released"), (file, "timm")):
        semantics = zoo.ViTConfig(activation="gelu_tanh", layer_norm_epsilon=1e-6)
        with pytest.raises(zoo.CheckpointError, match="cannot say problem_type="):
            zoo.write(path, checkpoint, naming=naming, semantics=semantics)


def test_processor_config_is_read_like_preprocessor_config(changed):
    found = zoo.read(CASES / "mean_in_processor_config").semantics
    assert found.input_mean == (0.1, 0.2, 0.3) and found.input_std == (0.4, 0.5, 0.6)
    # One without an image processor says nothing of images.
    folder = changed("own_names_of_3", "processor_config.json", processor_class="X")
    assert zoo.read(folder).semantics.input_mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("settings", "mean", "std"),
    [
        ({}, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
        ({"image_mean": 0.5, "image_std": 0.25}, (0.5,) * 3, (0.25,) * 3),
        ({"do_normalize": False}, (0, 0, 0), (1, 1, 1)),
        ({"do_normalize": False, "do_rescale": False}, (0,) * 3, (1 / 255,) * 3),
        ({"do_normalize": False, "rescale_factor": 2 / 255}, (0,) * 3, (0.5,) * 3),
        (
            {
                "image_processor_type": "EfficientNetImageProcessor",
                "do_normalize": False,
                "include_top": False,
                "rescale_offset": True,
                "rescale_factor": 1 / 127.5,
            },
            (0.5,) * 3,
            (0.5,) * 3,
        ),
        (
            {"image_processor_type": "EfficientNetImageProcessor"},
            (0.1, 0.2, 0.3),
            (0.16, 0.25, 0.36),
        ),
    ],
)
def test_mean_and_deviation_are_those_of_the_processor(tmp_path, settings, mean, std):
    file = tmp_path / image_processors.FILES[0]
    file.write_text(json.dumps(PROCESSOR | settings))
    found = image_processors.read(tmp_path, ((0, 0, 0), (1, 1, 1)))
    assert found.mean == pytest.approx(mean) and found.std == pytest.approx(std)


def test_settings_that_are_off_or_of_other_things_change_nothing(tmp_path):
    off = {"do_flip_channel_order": False, "do_pad": None, "rescale_offset": False}
    file = tmp_path / image_processors.FILES[0]
    file.write_text(json.dumps(PROCESSOR | off | {"do_convert_rgb": True}))
    found = image_processors.read(tmp_path, ((0, 0, 0), (1, 1, 1)))
    assert found.mean == (0.1, 0.2, 0.3)
    assert found.preparation == "transformers squash bilinear"


SQUARE = {"height": 224, "width": 224}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"size": SQUARE}, "transformers squash bilinear"),
        ({"size": 224, "resample": 3}, "transformers squash bicubic"),
        (
            {"size": 256, "image_processor_type": "DeiTImageProcessor"},
            "transformers squash bicubic 0.875",
        ),
        (
            {"size": 224, "image_processor_type": "CLIPImageProcessorFast"},
            "transformers crop bicubic",
        ),
        (
            {
                "size": {"shortest_edge": 248},
                "do_center_crop": True,
                "crop_size": SQUARE,
                "resample": 1,
            },
            "transformers crop lanczos 0.9",
        ),
        (
            {
                "size": {"shortest_edge": 224},
                "crop_pct": 0.875,
                "image_processor_type": "ConvNextImageProcessor",
            },
            "transformers crop bicubic 0.875",
        ),
        ({"size": {"shortest_edge": 224}}, None),
        ({"size": {"shortest_edge": 224, "longest_edge": 500}}, None),
        ({"size": SQUARE, "do_resize": False}, None),
        ({"size": 200, "do_center_crop": True}, None),
        ({"resample": 3}, "transformers squash bicubic"),
    ],
)
def test_size_and_crop_are_the_preparation(tmp_path, settings, expected):
    file = tmp_path / image_processors.FILES[0]
    file.write_text(json.dumps(PROCESSOR | settings))
    found = image_processors.read(tmp_path, ((0, 0, 0), (1, 1, 1)))
    assert found.preparation == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"crop_pct": 0.9}, "timm crop bicubic 0.9"),
        ({"crop_pct": 1.0, "interpolation": "bilinear"}, "timm crop bilinear"),
        (
            {"crop_pct": 1, "crop_mode": "squash", "interpolation": "bicubic"},
            "timm squash bicubic",
        ),
        # timm's defaults, of which the share is one.
        ({"interpolation": "bilinear"}, "timm crop bilinear 0.875"),
        ({"crop_mode": "squash"}, "timm squash bicubic 0.875"),
        ({"crop_pct": None, "interpolation": ""}, None),
    ],
)
def test_crop_pct_of_timm_is_the_preparation(changed, tmp_path, settings, expected):
    inputs = {"mean": [0.5] * 3, "std": [0.5] * 3, **settings}
    checkpoint = zoo.read(changed("timm_label_names", pretrained_cfg=inputs))
    assert checkpoint.head.preparation == expected
    target = tmp_path / "written"
    target.mkdir()
    zoo.write(target / "model.safetensors", checkpoint, naming="timm")
    assert zoo.read(target).head == checkpoint.head
    written = json.loads((target / "config.json").read_text())["pretrained_cfg"]
    # What says nothing is squashed, which timm would not do by default.
    squash = {"crop_pct": 1, "crop_mode": "squash", "interpolation": "bilinear"}
    given = squash if expected is None else {"crop_pct": 0.875, **settings}
    assert given.items() <= written.items()


def test_a_crop_pct_that_would_need_much_memory_is_refused(changed):
    folder = changed("timm_label_names", pretrained_cfg={"crop_pct": 1e-6})
    with pytest.raises(zoo.CheckpointError, match="crop_pct of 1e-06"):
        zoo.read(folder)


def test_names_of_imagenet_come_from_a_card_alone():
    card = zoo.get("vit-ti16/augreg-imagenet21k+imagenet2012")
    assert card.class_names == "imagenet2012"
    assert zoo.get("vit-b16/imagenet21k").class_names == "imagenet21k"
    assert zoo.get("deit-b16/imagenet2012-224").class_names == "imagenet2012"
    assert zoo.get("dinov2-s14/lvd142m").class_names is None


def test_names_that_cannot_be_downloaded_are_left_out_with_a_word(monkeypatch):
    def refuse(*arguments, **options):
        raise zoo.StoreError("no network")

    monkeypatch.setattr(labels, "fetch", refuse)
    head = Head("imagenet21k", preparation="central crop")
    checkpoint = zoo.read(CASES / "own_names_of_3").without_head()
    object.__setattr__(checkpoint, "head", head)  # of no 21,843 outputs
    with pytest.warns(UserWarning, match="left out: no network"):
        found = with_names(checkpoint).head
    assert found == Head(preparation="central crop")


@pytest.mark.parametrize("naming", ["released", "transformers"])
def test_bits_of_photos_are_in_the_header_of_a_file(tmp_path, naming):
    checkpoint = zoo.read(CASES / "own_names_of_3")
    head = dataclasses.replace(checkpoint.head, bits=12)
    path = tmp_path / "model.safetensors"
    zoo.write(path, dataclasses.replace(checkpoint, head=head), naming=naming)
    assert zoo.read(path).head.bits == 12
    assert zoo.read(path).without_head().head.bits is None


def test_bits_that_photos_cannot_have_are_refused():
    entry = {"semantics": {}, "num_heads": 3, "grid_size": [4, 4], "head": {"bits": 77}}
    with pytest.raises(zoo.CheckpointError, match="bits must be 8 to 16 or None"):
        description.from_metadata({"keras_vit": json.dumps(entry)}, "a.safetensors")
