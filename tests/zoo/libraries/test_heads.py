"""What settings beside a file say of its outputs, and how photos come to the model."""

import dataclasses
import json
import pathlib

import pytest

import zoo
from zoo.catalog import labels
from zoo.catalog.locate import with_names
from zoo.libraries import description
from zoo.network.head import Head

CASES = pathlib.Path(__file__).parents[2] / "cases"


def names(folder):
    return zoo.read(folder).head.class_names


VIT, TIMM = "own_names_of_3", "timm_label_names"
ANIMALS = ("cat", "dog", "elk")
PLACEHOLDERS = {str(number): f"LABEL_{number}" for number in range(3)}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ANIMALS),
        # Numbers may have any order.
        ({"id2label": {"2": "elk", "0": "cat", "1": "dog"}}, ANIMALS),
        ({"id2label": PLACEHOLDERS}, None),
        ({"id2label": ...}, None),
        ({"id2label": ..., "label2id": {"b": "1", "a": 0, "c": 2}}, ("a", "b", "c")),
        ({"label2id": {"cat": "0", "dog": "1"}}, ANIMALS),
        ({"label2id": {"LABEL_2": 2}}, ANIMALS),
        ({"label2id": None}, ANIMALS),
    ],
)
def test_labels_of_transformers_are_the_names(settings, expected, changed):
    assert names(changed(VIT, {"label2id": ...} | settings)) == expected


def test_a_thousand_names_are_in_the_order_of_their_numbers():
    assert names(CASES / "own_names_of_1000") == tuple(
        f"product {number}" for number in range(1000)
    )


def test_problem_type_is_read_and_a_new_head_forgets_it():
    several = zoo.read(CASES / "several_labels")
    assert several.head.problem_type == "multi_label_classification"
    assert zoo.read(CASES / "one_number").head.problem_type == "regression"
    assert zoo.read(CASES / VIT).head.problem_type is None
    without = several.without_head()
    assert without.head.class_names is None and without.head.problem_type is None


@pytest.mark.parametrize(
    ("said", "table"),
    [
        (["a", "b", "c"], "pretrained_cfg"),
        ({"1": "b", "0": "a", "2": "c"}, None),
    ],
)
def test_label_names_of_timm_are_a_list_or_a_table(changed, said, table):
    changed(TIMM, {"label_names": ...})
    assert names(changed(TIMM, {"label_names": said}, table)) == ("a", "b", "c")


def test_a_wrapped_timm_model_has_the_settings_of_transformers(changed, refused):
    labels = ("left", "middle", "right")
    said = {
        "label_names": ...,
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
        "problem_type": "multi_label_classification",
    }
    folder = changed(TIMM, said)
    head = zoo.read(folder).head
    assert head.class_names == labels
    assert head.problem_type == "multi_label_classification"
    changed(TIMM, {"label_names": ["right", "middle", "left"]})
    refused(folder, "id2label of other names")


def test_timm_descriptions_of_ids_are_the_names(changed):
    ids = ["n01440764", "n01443537", "n01484850"]
    about = dict(zip(ids, ["tench", "goldfish", "shark"], strict=True))
    folder = changed(TIMM, {"label_names": ids, "label_descriptions": about})
    assert names(folder) == ("tench", "goldfish", "shark")
    # Those of names are longer texts about them.
    about = {"red": "of blood", "green": "of grass", "blue": "of the sky"}
    folder = changed(TIMM, {"label_names": [*about], "label_descriptions": about})
    assert names(folder) == ("red", "green", "blue")


@pytest.mark.parametrize("naming", ["released", "transformers", "timm"])
def test_names_and_bits_are_written_back(tmp_path, naming):
    checkpoint = zoo.read(CASES / VIT)
    head = dataclasses.replace(checkpoint.head, bits=12)
    checkpoint = dataclasses.replace(checkpoint, head=head)
    path = tmp_path / "model.safetensors"
    said = {"semantics": zoo.ViTConfig(layer_norm_epsilon=1e-6)}
    zoo.write(path, checkpoint, naming=naming, **(said if naming == "timm" else {}))
    found = zoo.read(path)
    assert (found.head.class_names, found.head.bits) == (ANIMALS, 12)
    assert found.without_head().head.bits is None
    if naming == "released":
        return
    config = json.loads((tmp_path / "config.json").read_text())
    if naming == "timm":
        assert config["label_names"] == [*ANIMALS]
    else:
        assert [*config["id2label"].values()] == [*ANIMALS]
        assert config["label2id"] == {name: at for at, name in enumerate(ANIMALS)}
        # Names that are corrected beside a file of ours are read.
        own = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": None}
        (tmp_path / "config.json").write_text(json.dumps(config | own))
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
    folder = changed(VIT, {"processor_class": "X"}, file="processor_config.json")
    assert zoo.read(folder).semantics.input_mean == (0.5, 0.5, 0.5)


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
    checkpoint = zoo.read(CASES / VIT).without_head()
    object.__setattr__(checkpoint, "head", head)  # of no 21,843 outputs
    with pytest.warns(UserWarning, match="left out: no network"):
        found = with_names(checkpoint).head
    assert found == Head(preparation="central crop")


def test_bits_that_photos_cannot_have_are_refused():
    entry = {"semantics": {}, "num_heads": 3, "grid_size": [4, 4], "head": {"bits": 77}}
    with pytest.raises(zoo.CheckpointError, match="bits must be 8 to 16 or None"):
        description.from_metadata({"keras_vit": json.dumps(entry)}, "a.safetensors")
