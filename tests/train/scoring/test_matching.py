"""Where the class names of a `.keras` file come from."""

import pytest

from keras_vit import VisionTransformer, ViTConfig
from train.common.errors import RunError
from train.models import classes, loaded_model
from train.scoring.matching import match_classes

CONFIG = ViTConfig(hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16, patch_size=16)
NAMES = ("red hot", "green", "blue")


@pytest.fixture(scope="module")
def model():
    return VisionTransformer(CONFIG, image_size=32, class_names=NAMES)


def test_a_file_alone_knows_its_classes(model, tmp_path):
    path = tmp_path / "renamed.keras"
    model.save(path)
    loaded = loaded_model.load(str(path))
    assert loaded.class_names == NAMES
    assert classes.classes_of(loaded).names == NAMES
    assert loaded_model.load(str(path), image_size=48).class_names == NAMES
    assert loaded_model.load(str(path), features=True).class_names is None


def test_names_beside_it_go_first_where_they_are_as_many(model, tmp_path):
    """These were corrected by hand; those of another model do not fit."""
    path, beside = tmp_path / "model.keras", tmp_path / "class_names.txt"
    model.save(path)
    beside.write_text("scarlet\ngreen\nblue\n")
    assert loaded_model.load(str(path)).class_names == ("scarlet", "green", "blue")
    beside.write_text("cat\ndog\n")
    assert loaded_model.load(str(path)).class_names == NAMES
    unnamed = VisionTransformer(CONFIG, image_size=32, classes=3)
    unnamed.save(path)
    with pytest.raises(RunError, match="class_names.txt has 2 lines, but .* 3"):
        loaded_model.load(str(path))


def test_accents_in_either_encoding():
    """macOS has them as characters of their own in names of folders."""
    model, data = ["\xe9t\xe9", "winte\u0301r"], ["wint\xe9r", "E\u0301te\u0301"]
    shown, places = match_classes(2, model, data)
    assert (shown, places.tolist()) == (tuple(model), [1, 0])
