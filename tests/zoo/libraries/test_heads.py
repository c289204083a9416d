"""What settings beside a file say of its outputs, and how photos come to the model."""

import dataclasses
import json
import pathlib

import pytest
from peer_files import settings_of

import zoo
from zoo.catalog import labels
from zoo.catalog.locate import with_names
from zoo.libraries import description
from zoo.network.head import Head

CASES = pathlib.Path(__file__).parents[2] / "cases"


def names(folder):
    return zoo.read(folder).head.class_names


VIT, TIMM = "own_names_of_3", "timm_label_names"
ANIMALS, COLOURS, ABC = ("cat", "dog", "elk"), ("red", "green", "blue"), ("a", "b", "c")
NUMBERED = {"2": "c", "0": "a", "1": "b"}
PLACEHOLDERS = {str(number): f"LABEL_{number}" for number in range(3)}
IDS = ["n01440764", "n01443537", "n01484850"]
OF_IDS, OF_COLOURS = (dict(zip(ids, ABC, strict=True)) for ids in (IDS, COLOURS))
INSIDE = settings_of(TIMM)["pretrained_cfg"] | {"label_names": ABC}


@pytest.mark.parametrize(
    ("case", "settings", "expected"),
    [
        # Numbers may have any order.
        (VIT, {"id2label": NUMBERED, "label2id": ...}, ABC),
        (VIT, {"id2label": PLACEHOLDERS, "label2id": ...}, None),
        (VIT, {"id2label": ..., "label2id": ...}, None),
        (VIT, {"id2label": ..., "label2id": {"b": "1", "a": 0, "c": 2}}, ABC),
        (VIT, {"label2id": {"cat": "0", "dog": "1"}}, ANIMALS),
        (VIT, {"label2id": {"LABEL_2": 2}}, ANIMALS),
        (VIT, {"label2id": None}, ANIMALS),
        (TIMM, {"label_names": NUMBERED}, ABC),
        (TIMM, {"label_names": ..., "pretrained_cfg": INSIDE}, ABC),
        # transformers, which wraps timm's models, has settings of its own.
        (TIMM, {"label_names": ..., "id2label": NUMBERED}, ABC),
        # Descriptions of ids are the names, those of names are longer texts.
        (TIMM, {"label_names": IDS, "label_descriptions": OF_IDS}, ABC),
        (TIMM, {"label_descriptions": OF_COLOURS}, COLOURS),
    ],
)
def test_labels_of_settings_are_the_names(case, settings, expected, changed):
    assert names(changed(case, settings)) == expected


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
    new = checkpoint.without_head().head
    assert new.class_names is None and new.problem_type is None
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    for path, naming in ((tmp_path / "x.npz", "released"), (file, "timm")):
        semantics = zoo.ViTConfig(activation="gelu_tanh", layer_norm_epsilon=1e-6)
        with pytest.raises(zoo.CheckpointError, match="cannot say problem_type="):
            zoo.write(path, checkpoint, naming=naming, semantics=semantics)


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
