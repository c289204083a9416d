"""What is said of a path that is no model: what it is, and what to pass instead."""

import pytest

import zoo
from zoo.catalog import locate
from zoo.common.regular_files import missing_remedy

PHOTOS = "holds photos, no model: pass a model, which in commands comes before photos"
OF_TF = "vit.data-00000-of-00001"
UNREAD = "a holds weights of a kind that is not read,"
TWO = ("a/1.jpg", "a/2.jpg")
# The files of a folder, what is passed, and what is said of it.
PASSED = {
    "photos": (["holiday/1.jpg"], "holiday", f"holiday {PHOTOS}"),
    "photos by class": (["a/red/1.PNG", "a/red/x.txt"], "a", f"a {PHOTOS}"),
    "photos and labels": ([*TWO, "a/labels.pkl"], "a", f"a {PHOTOS}"),
    "a photo": (["1.jpg"], "1.jpg", "1.jpg is a photo, no model: pass a model"),
    "a finished run": (
        ["a/model.keras", "a/weights.npz", "a/checkpoints/1.npz"],
        "a",
        'a is a finished run, loaded by keras.saving.load_model("a/model.keras");',
    ),
    "a run": (["a/checkpoints/1.npz"], "a", "a is a run that has not finished: give"),
    "runs": (["runs/a/model.keras"], "runs", "pass one of them, such as runs/a."),
    "a registry": (["r/a/model.json"], "r", "pass one of them, such as r/a."),
    "an export": (["a/model.onnx"], "a", "a is an export, model.onnx: pass what it"),
    "a file of it": (["m.tflite"], "m.tflite", "is an export: keras-vit predict runs"),
    "other weights": (["a/pytorch_model.bin", *TWO], "a", "not read, pytorch_"),
    "weights beside photos": (["a/best.pth", "a/1.jpg"], "a", f"{UNREAD} best.pth: s"),
    "TensorFlow's": (["a/1.jpg", f"a/b/{OF_TF}"], "a", f"{UNREAD} {OF_TF}: save"),
    "weights of another name": (["a/vit.npz", "a/1.jpg"], "a", "It holds 1.jpg, vit.n"),
    "a text": (["a.md"], "a.md", "a.md is neither an .npz file nor .safetensors or"),
    "other weights, none": (["a/notes.txt"], "a", "It holds notes.txt."),
    "a typing error": (["runs/photos/x"], "rnus/photo", "did you mean runs/photos?"),
    "another ending": (["a.npz"], "a.npy", "There is no file or folder a.npy: did you"),
    "like a file": (["rnus"], "runs", "did you mean rnus? No model is called 'runs'."),
    "nothing alike": ([], "nosuch", "nosuch: check the path. No model is called"),
}


@pytest.mark.parametrize("case", PASSED)
def test_a_path_that_is_no_model_says_what_it_is(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, passed, message = PASSED[case]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"\xff\xd8\xff")
    with pytest.raises((zoo.CatalogError, zoo.CheckpointError)) as found:
        locate.read_located(passed)
    assert message in str(found.value), found.value
    # Before anything is read, and so before TensorFlow is imported.
    with pytest.raises(type(found.value)) as early:
        locate.check(passed)
    assert str(early.value) == str(found.value)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("https://host/a.onnx", "is an export: download it for keras-vit predict, or"),
        ("https://host/vit.tflite?download=true", "is an export: download it"),
        ("https://host/vit.keras", "is a model of Keras: download it, pass the file."),
        ("http://host/1.jpg", "is a photo, no model: pass a model, which"),
    ],
)
def test_a_url_of_no_model_is_named_as_it_is(url, what):
    with pytest.raises(zoo.CheckpointError) as found:
        locate.check(url)
    assert str(found.value).startswith(f"{url} {what}")
    # The name of a repository of the hub says nothing.
    locate.check("hf://org/model.onnx")


def test_a_missing_path_asks_for_the_one_that_is_like_it(tmp_path):
    (tmp_path / "runs" / "photos").mkdir(parents=True)
    (tmp_path / "runs" / "photos" / "model.keras").touch()
    for missing in ("run/photos/model.keras", "runs/photo/modl.keras"):
        remedy = missing_remedy(tmp_path / missing)
        assert remedy == f"did you mean {tmp_path}/runs/photos/model.keras?"
    (tmp_path / ".git").touch()
    for missing in (
        "digits",
        "runs/xyz",
        "xyz/photos",
        "runs/photos",
        "runs/photos/\0",
    ):
        assert missing_remedy(tmp_path / missing) == "check the path."
    # The question has no control characters.
    (tmp_path / "pho\n\x1btos").mkdir()
    asked = rf"did you mean {tmp_path}/pho\x0a\x1btos?"
    assert missing_remedy(tmp_path / "photos") == asked
