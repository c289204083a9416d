"""Names, paths and URLs: which of them a text is, and what is said where it is none."""

import pathlib
import shutil
import sys

import pytest
from made_index import B16

import zoo
from zoo import store
from zoo.catalog import handles, locate, registry
from zoo.catalog.similar import similar_releases, similar_variants
from zoo.common.regular_files import missing_remedy
from zoo.store import transport


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory, where nothing is downloaded but told."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("KERAS_VIT_REGISTRY", raising=False)
    monkeypatch.setattr(store, "fetch", lambda source, **_: ("fetched", str(source)))
    return folder


def test_a_handle_goes_before_a_folder_called_so(here):
    for handle in ("vit-b16/sam", "vit-b16/imagenet21k+imagenet2012-384"):
        (here / handle).mkdir(parents=True)
        assert zoo.locate(handle) == ("fetched", zoo.get(handle).url)
    assert zoo.locate("./vit-b16/sam") == pathlib.Path("vit-b16/sam")
    assert zoo.locate(pathlib.Path("vit-b16/sam")) == pathlib.Path("vit-b16/sam")


def test_a_folder_that_nothing_is_called_after_is_a_path(here):
    (here / "own").mkdir()
    # Without a variant no release is meant.
    (here / "imagenet21k").mkdir()
    assert zoo.locate("own") == pathlib.Path("own")
    assert zoo.locate("imagenet21k") == pathlib.Path("imagenet21k")
    # With one, its own or not, a release is.
    _, url = zoo.locate("imagenet21k", "ViT-B_16")
    assert url.endswith("/imagenet21k/ViT-B_16.npz")
    for release in ("imagenet21k", "imagenet21k+imagenet2012-384"):
        (here / release).mkdir(exist_ok=True)
        with pytest.raises(zoo.CatalogError, match="ViT-S_16 was not released as"):
            zoo.locate(release, "ViT-S_16")
    (here / "imagenet").mkdir()
    assert zoo.locate("imagenet", "ViT-S_16") == pathlib.Path("imagenet")


def test_files_need_no_registry_and_go_before_the_index_of_augreg(
    here, goldens, monkeypatch
):
    fetched, url = zoo.locate(B16)
    assert fetched == "fetched" and B16 in url
    (here / f"{B16}.npz").touch()
    assert zoo.locate(f"{B16}.npz") == pathlib.Path(f"{B16}.npz")
    # This one is down.
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0)
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "http://127.0.0.1:9/r")
    for name in ("tiny.npz", "tiny.safetensors", "tiny"):
        shutil.copy(goldens / "token.npz", here / name)
        assert zoo.locate(name) == pathlib.Path(name)
    assert not handles.named("tiny.keras")
    assert zoo.read(zoo.locate("tiny.npz")).classes == 10
    with pytest.raises(zoo.StoreError, match="registry of KERAS_VIT_REGISTRY cannot"):
        zoo.locate("published")


def test_a_file_goes_before_a_published_model_called_so(here, monkeypatch):
    published, asked = dict.fromkeys(("best.npz", "best"), "its card"), []
    monkeypatch.setattr(registry, "models", lambda: asked.append(1) or published)
    # In zoo itself the name is the function's.
    module = sys.modules["zoo.catalog.locate"]
    monkeypatch.setattr(module, "fetch_card", lambda card: card)
    assert zoo.locate("best") == "its card"
    assert asked == [1]
    (here / "best").mkdir()
    assert handles.named("best")
    (here / "best").rmdir()
    for name in published:
        (here / name).touch()
        assert zoo.locate(name) == pathlib.Path(name)


def test_paths_at_home_and_paths_that_are_not_there(here, goldens, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    zoo.write("~/copy.npz", zoo.read(goldens / "token.npz"))
    for path in ("~/copy.npz", pathlib.Path("~/copy.npz")):
        assert zoo.locate(path) == here / "copy.npz"
        assert zoo.read(path).classes == 10
    monkeypatch.undo()
    for path in (here / "none.npz", str(here / "none.npz")):
        with pytest.raises(zoo.StoreError, match="There is no file .*none.npz"):
            zoo.locate(path)
    with pytest.raises(zoo.CatalogError, match="no file or folder sam. .*vit-s16/sam"):
        zoo.locate("sam")
    for text in ("sam", "./vit-b16/sam", "vit-b16/none", "", "/", "own.npz"):
        assert not handles.named(text)


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
    "neither": (["a/notes.txt"], "a", "It holds notes.txt."),
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


def test_a_url_of_no_model_is_named_as_it_is():
    for url, what in (
        ("https://host/a.onnx", "is an export: download it for keras-vit predict, or"),
        ("https://host/vit.tflite?download=true", "is an export: download it"),
        ("https://host/vit.keras", "is a model of Keras: download it, pass the file."),
        ("http://host/1.jpg", "is a photo, no model: pass a model, which"),
    ):
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
    for missing in ("runs/xyz", "xyz/photos", "runs/photos", "runs/photos/\0"):
        assert missing_remedy(tmp_path / missing) == "check the path."
    # The question has no control characters.
    (tmp_path / "pho\n\x1btos").mkdir()
    asked = rf"did you mean {tmp_path}/pho\x0a\x1btos?"
    assert missing_remedy(tmp_path / "photos") == asked


VARIANTS = {
    "ViT-Tiny_16": "ViT-Ti_16",
    "ViT_Ti16": "ViT-Ti_16",
    "vit_base_patch8_224.augreg_in21k": "ViT-B_8",
    "google/vit-large-patch32-384": "ViT-L_32",
    "google/vit-huge-patch14-224-in21k": "ViT-H_14",
    "VIT B/32": "ViT-B_32",
    "vit_small_r26_s32_224": "R26+ViT-S_32",
    "vit_tiny_r_s16_p8_224": "R+ViT-Ti_16",
    "R50_ViT_L32": "R50+ViT-L_32",
    "vitb16": "ViT-B_16",
}
RELEASES = {
    "in21k": "imagenet21k",
    "imagenet-21k": "imagenet21k",
    "orig_in21k_ft_in1k": "imagenet21k+imagenet2012",
    "augreg_in21k": "augreg-imagenet21k",
    "augreg_in21k_ft_in1k": "augreg-imagenet21k+imagenet2012",
    "sam_in1k": "sam",
    "imagnet21k": "imagenet21k",
}


def test_names_of_variants_and_releases():
    for name, variant in VARIANTS.items():
        assert similar_variants(name, zoo.VARIANTS)[0] == variant, name
    for variant in zoo.VARIANTS:
        assert similar_variants(variant, zoo.VARIANTS) == [variant]
    for other in ("efficientnet", "ViT-G_14", "vit_small_patch8_224"):
        assert similar_variants(other, zoo.VARIANTS) == []
    for name, release in RELEASES.items():
        assert similar_releases(name, zoo.releases("ViT-B_16"))[0] == release, name
