"""A small model, photos of several shapes, and a report that is drawn quickly."""

import numpy as np
import PIL.Image
import pytest
import small_models
from explained import OF_ALL, save

import keras_vit
from keras_vit import explain
from train.explain import figures, page
from train.explain.report import explain as write_report
from train.models import loaded_model

ALL_KINDS = dict(figures.KINDS)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return save(small_models.made(), tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def tiny(model_file):
    return loaded_model.load(model_file)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of several shapes and formats, and what is to be left out."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "deep" / ".cache").mkdir(parents=True)
    sizes = {
        "wide.png": (900, 300),
        "<i>&tall.jpg": (40, 90),
        "deep/square.gif": (64, 64),
        "deep/grey.bmp": (30, 50),
        "deep/.hidden.png": (8, 8),
        "deep/.cache/thumb.png": (8, 8),
    }
    random = np.random.default_rng(0)
    for name, size in sizes.items():
        pixels = random.integers(0, 256, (4, 6, 3), "uint8")
        image = PIL.Image.fromarray(pixels).resize(size)
        image.convert("L" if "grey" in name else "RGB").save(folder / name)
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture
def whole_photos(monkeypatch):
    """No photo is damaged, so none is decoded to find out."""
    monkeypatch.setattr("train.explain.photos.find_corrupt", lambda split: [])


@pytest.fixture
def quick(monkeypatch, whole_photos):
    """Figures of few filters are drawn, but not rendered, and nothing is compiled.

    Returns a function that leaves kinds out.
    """
    embedding_filters = explain.embedding_filters

    def savefig(figure, path, **options):
        if path.suffix == ".png":
            PIL.Image.new("RGB", (9, 9)).save(path)
        else:
            path.write_bytes(b"%PDF-")

    def predictor(model, batch_size):
        return lambda images: model(images, training=False).numpy()

    def filters(model):
        return embedding_filters(model, components=4)

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)
    monkeypatch.setattr(keras_vit, "Predictor", predictor)
    monkeypatch.setattr(explain, "embedding_filters", filters)

    def only(*names):
        kinds = {name: ALL_KINDS[name] for name in (*OF_ALL, *names)}
        for module in (figures, page):
            monkeypatch.setattr(module, "KINDS", kinds)

    return only


@pytest.fixture
def explain_model(quick, monkeypatch):
    """Explains a model that is in memory; returns what report.json holds."""

    def report_of(loaded, images, out, **options):
        with monkeypatch.context() as patched:
            patched.setattr(loaded_model, "load", lambda *args, **kwargs: loaded)
            options.setdefault("overwrite", True)
            return write_report("tiny", images, out, **options)

    return report_of
