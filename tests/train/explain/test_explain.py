"""What the report of a model and photos holds, and what is refused."""

import contextlib
import csv
import dataclasses
import html.parser
import inspect
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess

import keras
import numpy as np
import PIL.Image
import pytest
import small_models
from in_process import run_command

import keras_vit
from keras_vit import explain
from keras_vit.models.bit import BiTResNet
from train.common.errors import RunError
from train.data.sources.splits import DataError
from train.explain import figures, inspection, page
from train.explain.photos import LONGER_SIDE, Photos
from train.explain.report import explain as write_report
from train.models import loaded_model
from train.models.classes import Classes, classes_of
from zoo.network import BiTConfig
from zoo.preparation import ModelBits

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow reads the images"
)

NAMES = ("cat", "dog", "red fox", "<b>owl</b> & co", "crow")
OF_PHOTOS = ("rollout", "gradient", "layers", "features", "heads")
OF_ALL = ("answers", "attention")
OF_MODEL = ("figure_7", "filters", "position_similarity", "attention_distance")
ALL_KINDS = dict(figures.KINDS)
# What a file of each format begins with.
PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-"


def save(model, folder, names=NAMES):
    """Saves a model, and the names of its classes beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "tiny.keras")
    if names is not None:
        lines = "".join(f"{name}\n" for name in names)
        (folder / "class_names.txt").write_text(lines)
    return str(folder / "tiny.keras")


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
    for name, (width, height) in sizes.items():
        pixels = random.integers(0, 256, (4, 6, 3), "uint8")
        image = PIL.Image.fromarray(pixels).resize((width, height))
        if "grey" in name:
            image = image.convert("L")
        image.save(folder / name)
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

    def savefig(figure, path, **options):
        if path.suffix == ".png":
            PIL.Image.new("RGB", (9, 9)).save(path)
        else:
            path.write_bytes(PDF)

    def predictor(model, batch_size):
        return lambda images: model(images, training=False).numpy()

    def filters(model):
        return embedding_filters(model, components=4)

    embedding_filters = explain.embedding_filters
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


def numbers(out, name):
    """The arrays behind a figure, read as a user would."""
    with np.load(out / "numbers" / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def prepared(path, channels=3):
    """An image as the model takes it, without our own code for that."""
    image = np.asarray(PIL.Image.open(path).convert("RGB"))
    image = tf.image.resize(image, small_models.SIZE)[None] / 127.5 - 1
    return (image if channels == 3 else tf.image.rgb_to_grayscale(image)).numpy()


class Page(html.parser.HTMLParser):
    """Collects what a page refers to, and its text."""

    def __init__(self, path):
        super().__init__()
        self.references, self.ids, self.alts, self.said = [], set(), [], []
        self.tags = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = re.sub(r"\s+", " ", " ".join(self.said))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "srcset", "action", "data", "poster"):
                self.references.append(value)
            if name == "id":
                self.ids.add(value)
            if name == "alt":
                self.alts.append(value)

    def handle_data(self, data):
        if self.tags and self.tags[-1] not in ("style", "script"):
            self.said.append(data)


@pytest.fixture(scope="module")
def report(model_file, photos, tmp_path_factory):
    """What the command leaves, after others that failed."""
    folder = tmp_path_factory.mktemp("work")
    model, images = f"--model={model_file}", ["--images", photos / "wide.png", photos]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words, message in (
            (
                ["--model=m.keras", "--images", "no.jpg", "--out=out"],
                "error: There is no image no.jpg: check the path.",
            ),
            ([model, "--out=out"], "Give a model and photos"),
            (["m.keras", "--out=out"], "Give a model and photos"),
            (["--out=out"], "Give a model and photos"),
        ):
            printed = contextlib.redirect_stdout(io.StringIO())
            with printed as output, pytest.raises(SystemExit) as end:
                run_command("explain", *words)
            assert output.getvalue() == "" and str(end.value).startswith(message)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            run_command("explain", model, *images, "--shown=2", "--out=new/report")
    ignored = f"ignored, no images by their names (1): {photos / 'notes.txt'}"
    first, *answers, last = output.getvalue().splitlines()
    assert (first, last) == (ignored, "report new/report/report.html")
    assert len(answers) == len(SEEN)
    for answer, name in zip(answers, SEEN, strict=True):
        classes = "|".join(map(re.escape, NAMES))
        assert re.fullmatch(rf"{re.escape(name)}: ({classes}) \d+\.\d%", answer)
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert [path.name for path in (folder / "new").iterdir()] == ["report"]
    return folder / "new" / "report"


# Each file once, in the order given, folders sorted; none that is hidden.
SEEN = ("wide.png", "<i>&tall.jpg", "deep/grey.bmp", "deep/square.gif")
SHOWN = {"01-wide": "wide.png", "02-square": "deep/square.gif"}


@pytest.mark.slow
def test_files_of_the_command(report):
    figures = {f"{photo}-{kind}" for photo in SHOWN for kind in OF_PHOTOS}
    figures |= {*OF_ALL, *OF_MODEL}
    drawn = {path.stem for path in (report / "figures").iterdir()}
    assert drawn == figures
    for name in figures:
        png = (report / "figures" / f"{name}.png").read_bytes()
        assert png.startswith(PNG)
        assert (report / "figures" / f"{name}.pdf").read_bytes().startswith(PDF)
    found = {path.stem for path in (report / "numbers").iterdir()}
    assert found == figures | {"predictions"}
    facts = json.loads((report / "report.json").read_text())
    assert [photo["name"] for photo in facts["photos"]] == list(SEEN)
    files = {p.relative_to(report).as_posix() for p in report.rglob("*.*")}
    assert set(facts["files"]) == files and facts["missing"] == {}


@pytest.mark.slow
def test_numbers_of_the_command(report, model_file, photos):
    model = keras.saving.load_model(model_file)
    grid = explain.grid_size(model)
    every = np.concatenate([prepared(photos / name) for name in SEEN])
    close = {"rtol": 1e-4, "atol": 1e-6}

    predictions = numbers(report, "predictions")
    expected = keras.ops.softmax(model(every)).numpy()
    np.testing.assert_allclose(predictions["probabilities"], expected, **close)
    assert tuple(predictions["class_names"]) == NAMES
    assert tuple(predictions["photos"]) == SEEN
    with (report / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SEEN) * 5
    for row, image in zip(rows[::5], range(len(SEEN)), strict=True):
        best = expected[image].argmax()
        assert row["photo"] == str(photos / SEEN[image]) and row["rank"] == "1"
        assert (int(row["class_number"]), row["class"]) == (best, NAMES[best])
        assert float(row["probability"]) == pytest.approx(expected[image, best], 1e-4)

    maps, for_classes = [], []
    for photo, name in SHOWN.items():
        image = every[SEEN.index(name)][None]
        attention = explain.attention_maps(model, image)[:, 0]
        best = int(model(image).numpy().argmax())
        features = explain.token_features(model, image)
        of_kind = {
            "rollout": ("map", explain.attention_rollout(model, image)[0]),
            "gradient": ("map", explain.gradient_attention(model, image, best)[0]),
            "layers": ("maps", attention.mean(axis=1)),
            "heads": ("maps", attention),
        }
        for kind, (key, matrix) in of_kind.items():
            found = numbers(report, f"{photo}-{kind}")
            assert str(found["photo"]) == name and str(found["unit"])
            expected = explain.patch_map(matrix, grid)
            np.testing.assert_allclose(found[key], expected, **close)
        assert numbers(report, f"{photo}-gradient")["class_name"] == NAMES[best]
        maps.append(numbers(report, f"{photo}-rollout")["map"])
        for_classes.append(numbers(report, f"{photo}-gradient")["map"])
        found = numbers(report, f"{photo}-features")
        for key, expected in {
            "patches": features.patches[0],
            "class_token": features.class_token[0],
            "colors": explain.principal_colors(features.patches)[0],
        }.items():
            np.testing.assert_allclose(found[key], expected, rtol=1e-3, atol=1e-3)
    found = numbers(report, "attention")
    np.testing.assert_array_equal(found["maps"], maps)
    answers = numbers(report, "answers")
    np.testing.assert_array_equal(answers["maps"], for_classes)
    assert list(found["photos"]) == list(SHOWN.values())

    filters = explain.embedding_filters(model)
    expected = {
        "components": filters.components,
        "explained_variance_ratio": filters.explained_variance_ratio,
        "similarity": explain.position_embedding_similarity(model),
        "distance": explain.attention_distance(model, every),
    }
    alone = {}
    for name in OF_MODEL[1:]:
        alone |= numbers(report, name)
    for key, array in expected.items():
        for found in (alone, numbers(report, "figure_7")):
            np.testing.assert_allclose(found[key], array, **close)
    assert tuple(alone["photos"]) == SEEN


@pytest.mark.slow
def test_page_needs_nothing_else(report):
    page = Page(report / "report.html")
    assert len(page.references) > 20
    for reference in page.references:
        if not reference.startswith("data:image/webp;base64,"):
            assert reference[0] == "#" and reference[1:] in page.ids
    # Of style: no address either.
    text = (report / "report.html").read_text()
    assert not re.search(r"url\(|@import", text)
    assert not {"link", "iframe", "object", "base"} & set(page.tags)
    assert page.tags.count("img") == len(page.alts) == 2 + 2 * 5 + 2 + 4
    assert all(page.alts)
    # What people name is text, not markup.
    assert not {"i", "b"} & set(page.tags)
    assert "<i>&tall.jpg" in page.text and "<b>owl</b> & co" in text.replace(
        "&lt;", "<"
    ).replace("&gt;", ">").replace("&amp;", "&")
    assert "keras-vit explain " in page.text
    assert len(text) < 5e6


@pytest.fixture
def chromium(tmp_path):
    """Opens a page; returns its pixels, its DOM, and what the browser printed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(names)} is installed")

    def opened(page):
        done = subprocess.run(
            [
                browser,
                *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
                *("--window-size=1200,1500", f"--screenshot={tmp_path / 'shot.png'}"),
                "--dump-dom",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        pixels = np.asarray(PIL.Image.open(tmp_path / "shot.png").convert("RGB"), int)
        return pixels, done.stdout, done.stderr

    return opened


@pytest.mark.slow
def test_page_in_a_browser(report, chromium, tmp_path):
    def without_errors(page):
        pixels, dom, printed = chromium(page)
        assert "CONSOLE" not in printed and "Content Security" not in printed, printed
        return pixels, dom

    page = report / "report.html"
    pixels, dom = without_errors(page)
    # Text and figures: neither blank nor of few colours.
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000
    # The script ran, which the policy allows by its hash.
    assert dom.count("<canvas") == 2 and '<div class="controls">' in dom

    # A layer is chosen: another map is over the photo than that of the answer.
    text = page.read_text()
    [main] = re.findall("<main .*?>", text)
    first = re.search(r'(<article.*?)class="answer"', text, re.DOTALL).start(1)
    only = tmp_path / "chosen.html"
    start, end = text.index('<nav id="contents"'), first
    short = text[:start] + main + "<section>" + text[end:]
    only.write_text(short)
    photo, _ = without_errors(only)
    slider = re.compile(r'(<input class="layer"[^>]*) value="0"')
    assert slider.search(short)
    # Another script than ours does not run.
    chosen = slider.sub(r'\1 value="1"', short)
    only.write_text(chosen.replace("</body>", "<script>document.title=1</script>"))
    pixels, _, printed = chromium(only)
    changed = np.abs(pixels - photo).max(axis=2) > 8
    assert 0.005 < changed.mean() < 0.5
    assert "Content Security Policy" in printed


NO_HEAD = dict.fromkeys(("answers", "gradient"), "has no head")
BIT = BiTConfig(depths=(1, 1), width_factor=1)
NO_ATTENTION = dict.fromkeys(
    (*OF_ALL, *OF_PHOTOS, "attention_distance"), "no TransformerBlock|PatchEncoder"
)


def bit():
    model = BiTResNet(BIT, image_size=small_models.SIZE, classes=5)
    small_models.randomize(model)
    return model


@pytest.mark.parametrize(
    ("make", "missing"),
    [
        (
            lambda: small_models.made(
                pooling="gap", channels=1, classifier_activation="softmax"
            ),
            {},
        ),
        (
            lambda: small_models.made(include_top=False),
            NO_HEAD | {"predictions": "has no head for classes"},
        ),
        (
            lambda: small_models.made(pooling=None),
            NO_HEAD | {"predictions": "a head for each token"},
        ),
        (
            lambda: small_models.made(
                **small_models.of(small_models.HYBRID, position_embedding="relative")
            ),
            {"position_similarity": "relative positions"},
        ),
        (bit, NO_ATTENTION | {"position_similarity": "no position embeddings"}),
    ],
    ids=["gap, gray", "features", "all tokens", "hybrid, relative", "BiT"],
)
def test_what_a_model_lacks(make, missing, explain_model, photos, tmp_path):
    model = make()
    out = tmp_path / "out"
    names = NAMES if model.output_shape[1:] == (5,) else None
    loaded = loaded_model.LoadedModel("tiny", model, names)
    facts = explain_model(loaded, [photos / "wide.png"], out)
    why = dict(facts["missing"])
    if facts["why_no_predictions"]:
        why["predictions"] = facts["why_no_predictions"]
    assert set(why) == set(missing)
    page = Page(out / "report.html")
    for kind, reason in missing.items():
        assert re.search(reason, why[kind]), why[kind]
        assert why[kind] in page.text
    drawn = {re.sub(r"^01-wide-", "", p.stem) for p in (out / "figures").iterdir()}
    assert drawn == {*OF_ALL, *OF_PHOTOS, *OF_MODEL} - set(missing)
    # The rest is right.
    image = prepared(photos / "wide.png", model.input_shape[-1])
    if "predictions" not in missing:
        outputs = model(image).numpy()
        if model.layers[-1].activation.__name__ == "linear":
            outputs = keras.ops.softmax(outputs).numpy()
        found = numbers(out, "predictions")["probabilities"]
        np.testing.assert_allclose(found, outputs, rtol=1e-3, atol=1e-3)
        assert facts["photos"][0]["predictions"][0][1] in page.text
    if "rollout" not in missing:
        [rollout] = explain.attention_rollout(model, image)
        np.testing.assert_allclose(
            numbers(out, "01-wide-rollout")["map"],
            explain.patch_map(rollout, explain.grid_size(model)),
            rtol=1e-3,
            atol=1e-5,
        )


def test_a_pooling_by_attention_is_shown(explain_model, quick, photos, tmp_path):
    quick("rollout", "gradient", "layers", "pooling")
    model = small_models.made(pooling="map")
    loaded = loaded_model.LoadedModel("tiny", model, NAMES)
    results = explain_model(loaded, [photos / "wide.png"], tmp_path / "out")
    assert results["attention_of"] == "the query of the pooling"
    text = Page(tmp_path / "out" / "report.html").text
    assert "How much of each patch reaches the query of the pooling" in text
    assert "Attention of the mean of the patches in each layer" in text

    image = prepared(photos / "wide.png")
    grid = explain.grid_size(model)
    pooled = explain.pooling_attention(model, image)
    found = numbers(tmp_path / "out", "01-wide-pooling")
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(found["maps"], pooled.reshape(-1, *grid), **close)
    np.testing.assert_allclose(found["map"], found["maps"].mean(axis=0), **close)
    rollout = explain.attention_rollout(model, image)
    [expected] = explain.patch_map(rollout, grid, pooled.mean(axis=1))
    found = numbers(tmp_path / "out", "01-wide-rollout")["map"]
    np.testing.assert_allclose(found, expected, **close)
    matrix, weights = explain.gradient_attention(model, image, return_pooling=True)
    [expected] = explain.patch_map(matrix, grid, weights)
    found = numbers(tmp_path / "out", "01-wide-gradient")["map"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_the_function_has_the_defaults_of_the_flags(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("m.keras", "a", "b", "c"):
        pathlib.Path(name).touch()
    given = {}

    def explain(model, images, out, command, **arguments):
        given.update(arguments, positional=(model.source, images, out))
        raise RunError("enough")

    monkeypatch.setattr("train.explain.report.explain", explain)
    for words, positional in (
        (
            ("--model=m.keras", "--images", "a", "--out=out", "b"),
            ("m.keras", ["a", "b"], "out"),
        ),
        (
            ("m.keras", "a", "b", "--images=c"),
            ("m.keras", ["c", "a", "b"], "explanation"),
        ),
    ):
        with pytest.raises(SystemExit, match="enough"):
            run_command("explain", *words)
        assert given.pop("positional") == positional
    parameters = list(inspect.signature(write_report).parameters.values())
    assert given == {one.name: one.default for one in parameters[3:-1]}


def test_one_forward_pass_shows_all_but_gradients(
    explain_model, quick, tiny, photos, tmp_path, monkeypatch
):
    quick("rollout", "layers", "heads", "features", "attention_distance")
    calls, call = [], keras.Model.__call__

    def counted(model, images, **options):
        if model is tiny.model and not isinstance(images, keras.KerasTensor):
            calls.append(len(images))
        return call(model, images, **options)

    monkeypatch.setattr(keras.Model, "__call__", counted)
    monkeypatch.setattr(explain, "gradient_attention", no_gradient)
    facts = explain_model(tiny, [photos], tmp_path / "out")
    assert calls == [len(facts["photos"])]


def no_gradient(model, images, number, **_):
    raise ValueError("not this time")


def sinks_of(counts, shares, photos):
    found = inspection.find_sinks(np.array(counts), np.array(shares), photos)
    return found, inspection.describe_sinks(found, np.shape(counts)[1:])


def test_attention_sinks_are_named():
    counts, shares = np.zeros((2, 6, 8), int), np.zeros((2, 6, 8))
    assert sinks_of(counts, shares, 4) == ([], None)
    # In half of the photos, and in fewer.
    counts[1, 0, 0], counts[1, 5, 7], counts[0, 0, 3] = 4, 2, 1
    shares[1, 0, 0], shares[1, 5, 7] = 0.31, 0.2
    rows, sentence = sinks_of(counts, shares, 4)
    assert rows == [
        {"layer": 2, "row": 1, "column": 1, "share": 0.31, "photos": 4},
        {"layer": 2, "row": 6, "column": 8, "share": 0.2, "photos": 2},
    ]
    assert sentence.count(".") == 1
    assert "2 patches at the border (row 1 column 1, row 6 column 8)" in sentence
    assert "shows, in layer 2 with 51% of all attention" in sentence


def test_few_photos_show_no_sinks():
    counts, shares = np.full((1, 6, 8), 3), np.full((1, 6, 8), 0.02)
    assert sinks_of(counts, shares, 3) == ([], None)
    assert len(sinks_of(counts + 1, shares, 4)[0]) == 48


def test_sinks_at_all_corners_and_in_several_layers():
    counts, shares = np.zeros((3, 6, 8), int), np.zeros((3, 6, 8))
    for layer, share in ((1, 0.1), (2, 0.05)):
        for row, column in itertools.product((0, -1), repeat=2):
            counts[layer, row, column], shares[layer, row, column] = 4, share
    _, sentence = sinks_of(counts, shares, 4)
    assert "the patches at the four corners (row 1 column 1, row 1 column 8" in sentence
    assert "in layers 2, 3, most in layer 2 with 40% of all attention" in sentence
    # Four patches that are not at the corners.
    _, sentence = sinks_of(np.roll(counts, 1, axis=2), shares, 4)
    assert "4 patches at the border" in sentence


def test_a_new_head_and_outputs_that_are_not_finite(
    explain_model, quick, photos, tmp_path
):
    quick("gradient")
    model = keras_vit.VisionTransformer(
        small_models.PLAIN, image_size=small_models.SIZE, classes=5
    )
    loaded = loaded_model.LoadedModel("tiny", model, NAMES)
    out = tmp_path / "out"
    facts = explain_model(loaded, [photos / "wide.png"], out)
    assert "the head is new" in facts["why_no_predictions"]
    assert set(facts["missing"]) == {"answers", "gradient"}
    assert not (out / "predictions.csv").exists()
    quick()
    model.get_layer("head").bias.assign([np.nan, 0, 0, 0, 0])
    facts = explain_model(loaded, [photos / "wide.png"], out)
    assert "not finite" in facts["why_no_predictions"]
    assert facts["why_no_predictions"] in Page(out / "report.html").text


def test_a_class_that_is_asked_for(explain_model, quick, tiny, photos, tmp_path):
    quick("gradient")
    out = tmp_path / "out"
    facts = explain_model(tiny, [photos / "wide.png"], out, class_name="Red_Fox")
    assert facts["class"] == "red fox"
    assert classes_of(tiny).find("4") == (4, "crow")
    found = numbers(out, "01-wide-gradient")
    assert found["class_name"] == "red fox"
    image = prepared(photos / "wide.png")
    expected = explain.gradient_attention(tiny.model, image, 2)[0]
    expected = explain.patch_map(expected, explain.grid_size(tiny.model))
    np.testing.assert_allclose(found["map"], expected, rtol=1e-3, atol=1e-6)


def test_classes_without_names(explain_model, quick, photos, tmp_path, monkeypatch):
    quick()
    loaded = loaded_model.LoadedModel("tiny", small_models.made())
    facts = explain_model(loaded, [photos / "wide.png"], tmp_path / "out")
    assert "has 5 classes, whose names are not known" in facts["why_no_class_names"]
    page = Page(tmp_path / "out" / "report.html")
    assert facts["why_no_class_names"] in page.text
    assert re.search(r"class \d", page.text)
    with pytest.raises(RunError, match="'cat' is not one .*give a number from 0 to 4"):
        explain_model(loaded, [photos], tmp_path / "other", class_name="cat")

    # ImageNet's names need no network.
    model = keras_vit.VisionTransformer(
        small_models.PLAIN, image_size=small_models.SIZE, classes=1000
    )
    loaded = loaded_model.LoadedModel("tiny", model, "imagenet2012")
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    found = classes_of(loaded)
    assert found.why_no_names is None
    assert (found.names[0], found.names[2]) == ("tench", "great white shark")


def test_photos_as_they_are_shown(photos, whole_photos):
    found = Photos([photos])
    shape = (*small_models.SIZE, 3)
    found.prepare_for(shape)
    assert found.names == ("<i>&tall.jpg", *SEEN[2:], "wide.png")
    # Squashed for the model, whole and smaller for people.
    small, photo = found.chosen([0, 3])
    np.testing.assert_allclose(photo.image, prepared(photos / "wide.png"), atol=1e-5)
    assert photo.picture.shape == (213, LONGER_SIDE, 3)
    expected = np.asarray(PIL.Image.open(photos / "<i>&tall.jpg"), int)
    assert np.abs(small.picture - expected).mean() < 2
    # Cropped for both.
    found.prepare_for(shape, "central crop")
    [photo] = found.chosen([3])
    assert photo.picture.shape == shape
    np.testing.assert_allclose(
        photo.picture, (photo.image[0] + 1) * 127.5, atol=0.50001
    )
    batches = list(found.batches(3))
    assert [len(batch) for batch in batches] == [3, 1]
    np.testing.assert_array_equal(batches[1], photo.image)


def test_names_of_photos(photos, tmp_path, whole_photos):
    link = tmp_path / "link.jpg"
    link.symlink_to(photos / "<i>&tall.jpg")
    long = tmp_path / "sub" / f"{'x' * 240}.png"
    long.parent.mkdir()
    shutil.copyfile(photos / "wide.png", long)
    found = Photos([link, long])
    assert found.names == ("link.jpg", f"sub/{long.name}")
    found.prepare_for((8, 8, 1))
    photo = dataclasses.replace(*found.chosen([1]), number=7)
    assert photo.file_name == f"07-{'x' * 60}" and photo.image.shape == (1, 8, 8, 1)
    assert dataclasses.replace(photo, name="<i>&tall.jpg").file_name == "07-i-tall"
    # The same file by two names is one.
    assert len(Photos([link, photos])) == 4


def test_names_of_photos_that_no_list_could_hold(photos, tmp_path):
    shutil.copyfile(photos / "wide.png", tmp_path / os.fsdecode(b"\xff.png"))
    with pytest.raises(DataError, match="not UTF-8: rename it"):
        Photos([tmp_path])


def test_photos_of_more_bits_are_refused_with_what_to_do(tmp_path):
    PIL.Image.fromarray(np.full((8, 8), 4096, "uint16")).save(tmp_path / "1.png")
    found = Photos([str(tmp_path)])
    for bits, remedy in ((12, "leave out bits=12"), (ModelBits(12), "pass bits=16")):
        found.prepare_for((8, 8, 3), bits=bits)
        with pytest.raises(DataError, match=rf"1\.png has .* 4,096, .*: {remedy}"):
            list(found.batches(1))


def test_photos_are_checked_once_where_the_model_says_bits(
    explain_model, quick, tiny, photos, tmp_path, monkeypatch
):
    checked = []
    monkeypatch.setattr(
        "train.explain.photos.find_corrupt", lambda split: checked.append(split)
    )
    monkeypatch.setattr("train.explain.report.bits_of", lambda model: ModelBits(12))
    assert explain_model(tiny, [photos], tmp_path / "out")["bits"] == 12
    assert len(checked) == 1


def test_photos_below_the_home_folder(photos, tmp_path, monkeypatch, whole_photos):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copyfile(photos / "wide.png", tmp_path / "a.png")
    for path in ("~", "~/a.png"):
        assert Photos([path]).paths == (tmp_path / "a.png",)


def test_cropped_photos(explain_model, quick, tiny, photos, tmp_path):
    quick("attention_distance")
    out = tmp_path / "out"
    facts = explain_model(tiny, [photos], out, central_crop=True, shown=1)
    assert facts["preparation"] == "central crop"
    found = Photos([photos])
    found.prepare_for((*small_models.SIZE, 3), "central crop")
    [images] = found.batches(4)
    np.testing.assert_allclose(
        numbers(out, "attention_distance")["distance"],
        explain.attention_distance(tiny.model, images),
        rtol=1e-4,
    )
    assert numbers(out, "attention_distance")["distance"].shape == (2, 4, 3)


def test_another_image_size(quick, model_file, photos, tmp_path):
    quick("heads")
    facts = write_report(
        model_file, [photos / "wide.png"], tmp_path / "out", image_size=48
    )
    assert facts["image_shape"] == [48, 48, 3] and facts["patches"] == [6, 6]
    maps = numbers(tmp_path / "out", "01-wide-heads")["maps"]
    assert maps.shape == (2, 3, 6, 6)


def test_only_an_earlier_report_is_replaced(
    explain_model, quick, tiny, photos, tmp_path, monkeypatch
):
    quick()
    out = tmp_path / "out"
    explain_model(tiny, [photos], out, shown=2)
    # Its own figures are not photos of the next one.
    PIL.Image.new("RGB", (20, 20), "red").save(tmp_path / "red.png")
    facts = explain_model(tiny, [tmp_path], out)
    assert [photo["name"] for photo in facts["photos"]] == ["red.png"]
    assert not list((out / "figures").glob("02-*"))
    before = {p: p.read_bytes() for p in out.rglob("*.*")}

    def stop(*arguments):
        raise KeyboardInterrupt

    # A failure leaves the earlier report.
    with monkeypatch.context() as failing:
        failing.setattr("train.explain.report.render", stop)
        with pytest.raises(KeyboardInterrupt):
            explain_model(tiny, [photos / "wide.png"], out)
    assert {p: p.read_bytes() for p in out.rglob("*.*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {"out", "red.png"}

    # Not unless that is asked for.
    with pytest.raises(RunError, match="holds an earlier report: pass --overwrite"):
        explain_model(tiny, [photos], out, overwrite=False)
    assert {p: p.read_bytes() for p in out.rglob("*.*")} == before

    (out / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="an earlier report, and notes.txt besides"):
        explain_model(tiny, [photos], out)
    with pytest.raises(RunError, match="is not an earlier report"):
        explain_model(tiny, [photos], photos)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunError, match="is not an earlier report"):
        explain_model(tiny, [photos], file)


def test_what_is_refused(model_file, photos, tmp_path):
    """Before the model is loaded, what is wrong with the photos."""
    broken = tmp_path / "broken.jpg"
    broken.write_bytes((photos / "<i>&tall.jpg").read_bytes()[:200])
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    for images, message in (
        (["gone.png"], r"There is no image gone\.png"),
        ([tmp_path / "empty"], r"empty has no images, \*{\.jpg.*give another folder"),
        ([photos, broken], r"broken\.jpg cannot be read as an image: dam"),
        ([tmp_path], r"broken\.jpg cannot be read"),
        ([photos / "notes.txt"], r"notes\.txt cannot be read as an image"),
    ):
        with pytest.raises(RunError, match=message):
            write_report(str(tmp_path / "no.keras"), images, out)
    with pytest.raises(RunError, match=r"no\.keras cannot be used"):
        write_report(str(tmp_path / "no.keras"), [photos], out)
    classes = Classes(NAMES)
    near = "'red fax' is not one of the model's 5 classes: give one such as red fox, or"
    with pytest.raises(RunError, match=near):
        write_report(model_file, [photos], out, class_name="red fax")
    with pytest.raises(RunError, match="'7' is not one .* such as cat, dog, red fox"):
        classes.find("7")
    twice = Classes(("a", "b", "A"))
    with pytest.raises(RunError, match="classes 0 and 2 are both called 'a'"):
        twice.find("a")
    features = save(small_models.made(include_top=False), tmp_path / "features")
    with pytest.raises(RunError, match="has no head for classes.*Leave --class out"):
        write_report(features, [photos], out, class_name="cat")
    many = loaded_model.LoadedModel("many", small_models.made(channels=4))
    gray_or_color = r"\(32, 48, 4\): .* \(height, width, 1\) or \(height, width, 3\) of"
    with pytest.raises(RunError, match=gray_or_color):
        loaded_model.image_shape_of(many, channels=(1, 3))
    assert not out.exists()


@pytest.mark.soak
def test_real_weights(shared, tmp_path):
    out = tmp_path / "out"
    [weights] = (shared / "weights").glob("ViT-Ti_16-*-224.npz")
    files = sorted((shared / "photos" / "imagenet").glob("*.jpg"))[:64]
    facts = write_report(str(weights), files, out, shown=2, class_name="0")
    assert facts["missing"] == {} and facts["patches"] == [14, 14]
    synsets = (shared / "labels" / "imagenet_synsets.txt").read_text().split()
    right = [
        synsets[photo["predictions"][0][0]] == pathlib.Path(photo["name"]).stem
        for photo in facts["photos"]
    ]
    assert len(right) == 64 and np.mean(right) > 0.7
    distance = numbers(out, "attention_distance")["distance"].mean(axis=1)
    # Some heads are local in the first layers; all look far in the last ones.
    assert distance[:3].min() < 40 < 100 < distance[-1].min()
    assert (out / "report.html").stat().st_size < 5e6
