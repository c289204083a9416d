"""Where the class names of a `.keras` file come from."""

from keras_vit import VisionTransformer, ViTConfig
from train.models import classes, loaded_model
from train.scoring.class_matching import match_classes

CONFIG = ViTConfig(hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16, patch_size=16)
NAMES = ("red hot", "green", "blue")


def test_names_beside_a_model_go_before_its_own_where_they_are_as_many(tmp_path):
    path, beside = tmp_path / "renamed.keras", tmp_path / "class_names.txt"
    VisionTransformer(CONFIG, image_size=32, class_names=NAMES).save(path)
    loaded = loaded_model.load(str(path))
    assert loaded.class_names == classes.classes_of(loaded).names == NAMES
    assert loaded_model.load(str(path), image_size=48).class_names == NAMES
    assert loaded_model.load(str(path), features=True).class_names is None
    # These were corrected by hand; those of another model do not fit.
    for text, names in (("scarlet\ngreen\nblue\n", None), ("cat\ndog\n", NAMES)):
        beside.write_text(text)
        names = names or tuple(text.split())
        assert loaded_model.load(str(path)).class_names == names


def test_accents_in_either_encoding():
    """macOS has them as characters of their own in names of folders."""
    model, data = ["\xe9t\xe9", "winte\u0301r"], ["wint\xe9r", "E\u0301te\u0301"]
    shown, places = match_classes(2, model, data)
    assert (shown, places.tolist()) == (tuple(model), [1, 0])
