"""Names, paths and URLs: which of them a text is."""

import pathlib
import shutil
import sys

import pytest
from made_index import B16

import zoo
from zoo import store
from zoo.catalog import handles, registry
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


def test_home(here, goldens, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    shutil.copy(goldens / "token.npz", here / "token.npz")
    for path in ("~/token.npz", pathlib.Path("~/token.npz")):
        assert zoo.locate(path) == here / "token.npz"
        assert zoo.read(path).classes == 10
    zoo.write("~/copy.npz", zoo.read("~/token.npz"))
    assert zoo.read(here / "copy.npz").classes == 10


def test_paths_that_are_not_there(tmp_path):
    for path in (tmp_path / "none.npz", str(tmp_path / "none.npz")):
        with pytest.raises(zoo.StoreError, match="There is no file .*none.npz"):
            zoo.locate(path)
    with pytest.raises(zoo.CatalogError, match="no file or folder sam. .*vit-s16/sam"):
        zoo.locate("sam")
    for text in ("sam", "./vit-b16/sam", "vit-b16/none", "", "/", "own.npz"):
        assert not handles.named(text)
