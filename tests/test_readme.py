"""Every block of the README, and of a page of docs, runs and prints what it says."""

import contextlib
import dataclasses
import functools
import http.server
import io
import json
import pathlib
import re
import threading
import urllib.parse

import pytest

import keras_vit
import zoo
from train import publishing, recipes

README = pathlib.Path(__file__).parent.parent / "README.md"
# What the README loads, with the size of its head and of its pre_logits.
FILES = {"imagenet21k+imagenet2012-224": (1000, None), "imagenet21k": (21843, 768)}


@pytest.fixture
def released_files(tmp_path, monkeypatch):
    """Random files in place of the released ones, served as those are."""
    for release, (classes, representation_size) in FILES.items():
        card = zoo.find("ViT-B_16", release)
        path = urllib.parse.unquote(urllib.parse.urlsplit(card.url).path)
        file = tmp_path / "server" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        model = keras_vit.ViT_B16(
            weights=None, classes=classes, representation_size=representation_size
        )
        keras_vit.save_released_weights(model, file)
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=tmp_path / "server"
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    yield
    server.shutdown()


@pytest.fixture
def trained_model(tmp_path):
    """What `make digits` leaves."""
    recipe = recipes.for_dataset("digits")
    model = keras_vit.VisionTransformer(
        recipe.model, image_size=recipe.image_size, classes=10
    )
    folder = tmp_path / "runs" / "digits"
    folder.mkdir(parents=True)
    model.get_layer("head").bias.assign(range(10))
    model.save(folder / "model.keras")
    names = "".join(f"{digit}\n" for digit in range(10))
    (folder / "class_names.txt").write_text(names)
    return folder


@pytest.fixture
def published_model(trained_model, tmp_path, monkeypatch):
    """What `python -m train.publish` makes of it."""
    report = {
        "test_accuracy": 0.1,
        "test_examples": 360,
        "per_class": [],
        "config": dataclasses.asdict(recipes.for_dataset("digits")),
    }
    (trained_model / "report.json").write_text(json.dumps(report))
    publishing.publish(trained_model, tmp_path / "registry")
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "")  # which a block sets


def check_blocks(page):
    """Runs a page's blocks one after another; returns how many printed what follows."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S)
    namespace = {}
    compared = 0
    for index, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name} block {index}", "exec"), namespace)
        if "print(" in code:
            assert blocks[index + 1] == ("text", printed.getvalue())
            compared += 1
    return compared


@pytest.mark.slow
def test_python_blocks_print_what_follows(released_files, published_model):
    assert check_blocks(README) >= 4


def test_python_blocks_of_explain_print_what_follows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_blocks(README.parent / "docs" / "explain.md") == 1


def test_table_lists_every_variant():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ([\d,]+) \|$", README.read_text(), re.M)
    assert len(rows) == len(keras_vit.VARIANTS)
    for variant, (function, releases, _) in zip(keras_vit.VARIANTS, rows, strict=True):
        assert getattr(keras_vit, function).__doc__.startswith(f"Returns {variant},")
        assert tuple(re.findall(r"`(.*?)`", releases)) == zoo.releases(variant)
