import hashlib
import json
import pathlib
import re
import shutil

import pytest
from published_card import CARD

import zoo
from zoo import store
from zoo.__main__ import main
from zoo.catalog import registry
from zoo.common import limits
from zoo.store import hub


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERAS_VIT_REGISTRY", raising=False)


def made(folder, *names, **changes):
    """A registry of models without files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).mkdir(parents=True)
        document = json.dumps(CARD | {"name": name} | changes)
        (folder / name / "model.json").write_text(document)
    return folder


def test_a_card_survives_its_file_and_is_shown(tmp_path, capsys):
    made(tmp_path, "flowers")
    card = registry.read(tmp_path / "flowers")
    assert json.loads(card.to_json()) == CARD
    assert card.image_size == (32, 48)
    assert card.url == f"{tmp_path / 'flowers'}/model.npz"
    assert card.top1 == 50.0
    assert main(["info", str(tmp_path / "flowers")]) == 0
    assert re.search(r"input range +-1 to 1, RGB *\n", capsys.readouterr().out)
    made(tmp_path, "gray", channels=1)
    assert main(["info", str(tmp_path / "gray")]) == 0
    assert re.search(r"input range +-1 to 1 *\n", capsys.readouterr().out)


def test_registries_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(made(tmp_path, "flowers")))
    registry.write_index("~/")
    assert (tmp_path / "registry.json").is_file()
    for card in (registry.read("~/flowers"), zoo.get("~/flowers")):
        assert card.url == f"{tmp_path}/flowers/model.npz"
    monkeypatch.setattr(hub, "check_push", lambda repository: None)
    with pytest.raises(zoo.StoreError, match=f"no folder {tmp_path}/none: check"):
        hub.push("~/none", "me/flowers")


def test_registries_are_read_in_order(tmp_path, monkeypatch):
    first = made(tmp_path / "first", "flowers", "birds")
    second = made(tmp_path / "second", "flowers", "cats", licence="mit")
    monkeypatch.setenv("KERAS_VIT_REGISTRY", f"{first}, {second},")
    assert list(registry.models()) == ["birds", "flowers", "cats"]
    assert zoo.get("flowers").licence == "apache-2.0"
    assert zoo.get("cats").licence == "mit"
    assert zoo.list_models()[-3:] == ["birds", "flowers", "cats"]
    with pytest.raises(zoo.CatalogError, match="Did you mean flowers"):
        zoo.get("flowrs")
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(first / "flowers"))
    with pytest.raises(zoo.CatalogError, match="flowers is a model, not a registry"):
        registry.models()


def test_a_name_goes_before_a_folder_called_so(tmp_path, monkeypatch, goldens):
    made(tmp_path / "registry", "flowers")
    model = tmp_path / "registry" / "flowers" / "model.npz"
    shutil.copy(goldens / "token.npz", model)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    card = CARD | {"sha256": digest, "file_size": model.stat().st_size}
    model.with_name("model.json").write_text(json.dumps(card))
    made(tmp_path, "flowers", name="other")
    monkeypatch.chdir(tmp_path)
    assert zoo.locate("flowers") == pathlib.Path("flowers")
    assert zoo.get("flowers").name == "other"
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "registry")
    assert zoo.locate("flowers") == pathlib.Path("registry/flowers/model.npz")
    assert zoo.get("flowers").name == "flowers"
    assert zoo.locate("./flowers") == pathlib.Path("flowers")


def test_models_of_the_hub_and_released_ones_need_no_registry(tmp_path, monkeypatch):
    made(tmp_path, "flowers")
    monkeypatch.setattr(hub, "fetch", lambda handle: tmp_path / handle[-7:])
    assert zoo.get("hf://me/flowers").class_names == ("daisy", "rose")
    with pytest.raises(zoo.CatalogError, match="holds no published model"):
        zoo.get("hf://google/vit")
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "/nowhere")
    assert zoo.get("vit-b16/sam").classes == 1000
    with pytest.raises(zoo.StoreError, match="no folder /nowhere.*KERAS_VIT_REGISTRY"):
        zoo.get("flowers")


def test_the_index_has_every_model_and_hidden_folders_none(tmp_path):
    made(tmp_path, "b", "a")
    made(tmp_path, ".a-unfinished", name="a")
    registry.write_index(tmp_path)
    index = json.loads((tmp_path / "registry.json").read_text())
    assert index["format"] == 1
    assert [model["name"] for model in index["models"]] == ["a", "b"]
    assert "folder" not in index["models"][0]
    made(tmp_path, "flowers", name="birds")
    assert registry.read(tmp_path / "flowers").name == "birds"
    with pytest.raises(zoo.CatalogError, match="flowers.*'birds'"):
        registry.write_index(tmp_path)


@pytest.mark.parametrize(
    "card",
    [
        *({"name": name} for name in ("../flowers", "", 7)),
        *({"weights": name} for name in ("../../model.npz", "model.keras")),
        *({"sha256": digest} for digest in ("0", None)),
        *({"classes": count} for count in (3, "2")),
        *({"class_names": names} for names in (None, [1, 2])),
        *({"metrics": metrics} for metrics in ({"test_accuracy": "good"}, [])),
        *({"image_size": [32]}, {"file_size": None}, {"architecture": None}),
        *({"unknown": 1}, {"variant": 1}, {"base": 1}),
        *("", "{", "[]", "null", "1", "[" * 100_000),
    ],
)
def test_damaged_cards_are_named(tmp_path, card):
    text = card if isinstance(card, str) else json.dumps(CARD | card)
    (tmp_path / "model.json").write_text(text)
    problem = r"model\.json (holds a damaged card|cannot be read)"
    with pytest.raises(zoo.CatalogError, match=problem):
        registry.read(tmp_path)


def index(**changes):
    return json.dumps({"format": 1, "models": [CARD | changes]}).encode()


def test_a_server_is_asked_anew_each_time_and_remembered(
    server, offer, cache, monkeypatch
):
    monkeypatch.setenv("KERAS_VIT_REGISTRY", server.url)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(zoo.StoreError, match="registry.json.*KERAS_VIT_OFFLINE"):
        registry.models()
    monkeypatch.delenv("KERAS_VIT_OFFLINE")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "REGISTRY_BYTES", 100)
        offer(name="registry.json", content=index())
        with pytest.raises(zoo.StoreError, match="more than 100 bytes"):
            registry.models()
    for name in ("flowers", "birds"):
        offer(name="registry.json", content=index(name=name))
        assert list(registry.models()) == [name]
    assert zoo.get("birds").url == f"{server.url}/birds/model.npz"
    offer(404, name="registry.json", content=index(name="cats"))
    with pytest.warns(UserWarning, match="404.*copy of the last download"):
        assert list(registry.models()) == ["birds"]
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert list(registry.models()) == ["birds"]


def test_a_damaged_index(monkeypatch):
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "https://a")
    for text in (
        *(b"", b"[]", b'{"format": 1}', b'{"format": 1, "models": [7]}', b"[" * 10**5),
        *(b'{"format": 2, "models": []}', b'{"format": 1, "models": [{}]}'),
        *(index(name="../flowers"), index(folder="/etc")),
    ):
        monkeypatch.setattr(store, "latest", lambda *_, text=text: text)
        with pytest.raises(zoo.CatalogError, match=r"registry\.json"):
            registry.models()
