"""Publishing a run, and loading it back as others do."""

import dataclasses
import json
import shutil

import in_process
import keras
import numpy as np
import pytest
import same_runs
import yaml

import keras_vit
import zoo
from keras_vit.models.bit import BiTResNet
from train.common.errors import RunError
from train.data.registry import short_name
from train.publish import publishing
from zoo.network import BiTConfig

FILES = {
    *("README.md", "class_names.txt", "report.json", "predictions.png"),
    *("confusion_matrix.png", "learning_curve.png", "model.json", "model.keras"),
    *("model.npz", "saved_model"),
}


@pytest.fixture(scope="module")
def registry(short_run, tmp_path_factory):
    """A registry that holds the run, as the command publishes it."""
    folder = tmp_path_factory.mktemp("published") / "registry"
    in_process.run_command("publish", short_run, f"--to={folder}")
    return folder


@pytest.fixture(scope="module")
def trained(short_run):
    return keras.saving.load_model(short_run / "model.keras")


@pytest.fixture
def other(short_run, tmp_path):
    """A copy of the run, to change."""
    return shutil.copytree(short_run, tmp_path / "other")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERAS_VIT_REGISTRY", raising=False)


@pytest.fixture
def no_saved_model(monkeypatch):
    """Leaves out the SavedModel, which takes longest to write."""
    for name in ("write_saved_model", "_check_saved_model"):
        monkeypatch.setattr(publishing, name, lambda *args, **options: None)


IMAGES = np.random.default_rng(0).uniform(-1, 1, (3, 32, 48, 3))


def assert_same(model, trained):
    expected = np.asarray(trained(IMAGES))
    np.testing.assert_array_equal(model(IMAGES), expected)
    assert np.ptp(expected) > 0


def test_what_is_in_the_folder(registry, short_run):
    assert {path.name for path in (registry / "digits").iterdir()} == FILES
    assert {path.name for path in registry.iterdir()} - {".lock"} == {
        "digits",
        "registry.json",
    }
    for name in ("model.keras", "class_names.txt"):
        published = (registry / "digits" / name).read_bytes()
        assert published == (short_run / name).read_bytes()
    names = (registry / "digits/saved_model/assets/class_names.txt").read_text()
    assert names.split() == list("0123456789")
    report = same_runs.report(short_run)
    assert report.pop("command") == "keras-vit finetune ..."
    assert all("keras-vit" in one["command"] for one in report.pop("try_next"))
    assert same_runs.report(registry / "digits") == report


def test_paths_and_commands_of_the_machine_are_not_published(
    no_saved_model, other, tmp_path
):
    report = same_runs.report(other)
    report["command"] = "keras-vit finetune --dataset=/home/me/secret/photos"
    report["try_next"] = [{"command": report["command"], "expected": "more"}]
    paths = {"dataset": "/home/me/secret/photos", "weights": "~/secret/mine.npz"}
    report["config"] |= paths
    (other / "report.json").write_text(json.dumps(report))
    folder = publishing.publish(other, tmp_path / "registry")
    for name in ("README.md", "report.json", "model.json"):
        text = (folder / name).read_text()
        assert "secret" not in text and "finetune --" not in text, name
        assert "photos" in text and "mine.npz" in text, name


def test_the_card(registry, short_run, short_recipe, trained):
    card = zoo.get(str(registry / "digits"))
    report = same_runs.report(short_run)
    assert (card.name, card.handle, card.data_set) == ("digits", "digits", "digits")
    others = {"test_examples", "test_suspected_label_errors"}
    names = {name for name in report if name.startswith("test_")} - others
    assert card.metrics == {name: report[name] for name in names}
    assert card.top1 == 100 * report["test_accuracy"]
    assert card.parameters == trained.count_params()
    assert (card.image_size, card.channels) == ((32, 48), 3)
    assert card.class_names == tuple(map(str, range(10)))
    assert keras_vit.ViTConfig(**card.architecture) == short_recipe.model
    assert card.file_size == (registry / "digits" / "model.npz").stat().st_size


def test_the_page_is_what_the_hub_reads(registry, short_run):
    page = registry / "digits" / "README.md"
    report = same_runs.report(short_run)
    header = yaml.safe_load(page.read_text().split("---\n")[1])
    assert header["datasets"] == ["digits"] and "base_model" not in header
    loss = f"{report['test_loss']:.4g} |"
    assert f"| test_loss (softmax cross-entropy) | {loss}" in page.read_text()
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard.load(page)
    assert (card.data.license, card.data.pipeline_tag, card.data.library_name) == (
        *("apache-2.0", "image-classification", "keras_vit"),
    )
    results = {result.metric_name: result for result in card.data.eval_results}
    assert results["Accuracy"].metric_value == report["test_accuracy"]
    assert results["Accuracy"].dataset_split == "test"
    assert "@article{dosovitskiy2020vit" in card.text
    assert f"{report['test_accuracy']:.2%} accuracy" in card.text


def test_loads_by_path_and_by_handle(registry, trained, monkeypatch):
    folder = registry / "digits"
    with pytest.raises(zoo.CatalogError, match="'digits'.*KERAS_VIT_REGISTRY"):
        keras_vit.load_model("digits")
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(registry))
    for source in (folder, str(folder), "digits"):
        model = keras_vit.load_model(source)
        assert_same(model, trained)
        assert model.get_layer("head").class_names == tuple("0123456789")
    assert_same(keras_vit.load_model(str(folder / "model.npz")), trained)
    model = keras_vit.load_model("digits", image_size=64, classes=3)
    assert model.get_layer("head").class_names is None
    assert model.output_shape == (None, 3)


def test_a_name_is_taken_once(no_saved_model, registry, short_run, tmp_path):
    copy = shutil.copytree(registry, tmp_path / "registry")
    with pytest.raises(RunError, match="'digits' already.*--name.*--replace"):
        publishing.publish(short_run, copy)
    publishing.publish(short_run, copy, name="other")
    publishing.publish(short_run, copy, licence="mit", replace=True)
    index = json.loads((copy / "registry.json").read_text())
    assert [model["name"] for model in index["models"]] == ["digits", "other"]
    assert zoo.get(str(copy / "digits")).licence == "mit"
    (copy / "digits" / "mine.txt").write_text("kept")
    for told in ("and mine.txt besides", "not a published model.* another --name"):
        with pytest.raises(RunError, match=told):
            publishing.publish(short_run, copy, replace=True)
        assert (copy / "digits" / "mine.txt").read_text() == "kept"
        (copy / "digits" / "model.json").unlink(missing_ok=True)


def test_a_failure_leaves_what_was_there(registry, short_run, tmp_path, monkeypatch):
    copy = shutil.copytree(registry, tmp_path / "registry")

    def content():
        return {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    def full(*arguments, **_):
        raise OSError(28, "No space left on device")

    before = content()
    monkeypatch.setattr(publishing, "write_saved_model", full)
    with pytest.raises(RunError, match="No space left"):
        publishing.publish(short_run, copy, replace=True)
    assert content() == before


@pytest.mark.parametrize(
    ("files", "settings", "told"),
    [
        ({"report.json": "{"}, {}, "other"),
        ({"model.keras": "PK"}, {}, "other"),
        ({"class_names.txt": "one\n"}, {}, "names 1 classes and .* has 10"),
        (
            {"class_names.txt": "\n".join("0123456") + "\nsev\u202een\n8\n9\n"},
            {},
            r"class 'sev\\u202een' cannot .* in .*other/class_names",
        ),
        ({}, {"to": "http://host"}, "http://host.*pass a folder"),
        ({}, {"name": "index.html"}, "not a model name"),
        ({}, {"name": "../digits"}, "not a model name.*--name"),
        ({}, {"licence": "m\ait"}, r"cannot be published: 'm\\x07it' has control"),
    ],
)
def test_what_cannot_be_published(
    no_saved_model, other, tmp_path, monkeypatch, files, settings, told
):
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        (other / name).write_text(text)
    with pytest.raises(RunError, match=told):
        publishing.publish(other, **{"to": "new", **settings})
    assert not [path for path in tmp_path.glob("new/*") if path.name != ".lock"]


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ("runs/digit", r"no run directory runs/digit: did you mean runs/digits\?"),
        ("runs/my run!", "no run directory runs/my run!: check the path"),
        ("runs/digits/notes.txt", "no run directory runs/digits/notes.txt: check"),
        ("runs/digits", "runs/digits has no report.json, so it holds no finished run"),
    ],
)
def test_a_run_that_is_not_there_or_not_finished(tmp_path, monkeypatch, run, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    (tmp_path / "runs" / "digits" / "notes.txt").touch()
    with pytest.raises(RunError, match=told):
        publishing.publish(run, "new")


def test_what_has_other_names_cannot_be_published(other, tmp_path):
    model = BiTResNet(BiTConfig((1, 1)), image_size=(32, 48), classes=10)
    model.save(other / "model.keras")
    told = "'bit_resnet' is a BiT ResNet .*keep it with Model.save"
    with pytest.raises(RunError, match=told):
        publishing.publish(other, tmp_path / "registry")


def test_what_npz_cannot_say_goes_into_safetensors(
    no_saved_model, other, short_recipe, tmp_path
):
    config = dataclasses.replace(
        short_recipe.model, activation="gelu", layer_norm_epsilon=1e-12
    )
    model = keras_vit.VisionTransformer(config, image_size=(32, 48), classes=10)
    model.get_layer("head").kernel.assign(np.eye(config.hidden_size, 10))
    model.save(other / "model.keras")
    folder = publishing.publish(other, tmp_path / "registry")
    assert not (folder / "model.npz").exists()
    assert zoo.get(str(folder)).weights == "model.safetensors"
    assert_same(keras_vit.load_model(folder), model)


def test_what_a_data_set_is_called():
    assert short_name("/home/me/photos/") == "photos"
    assert short_name("cifar100:3.*.*") == "cifar100"


def test_the_command_and_its_mistakes(
    no_saved_model, short_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    to = f"--to={tmp_path / 'new'}"
    with pytest.raises(SystemExit, match="hf auth login"):
        in_process.run_command("publish", short_run, to, "--push_to=me/digits")
    assert not (tmp_path / "new").exists()
    capsys.readouterr()
    in_process.run_command("publish", short_run, to, "--name=from-command")
    folder = tmp_path / "new" / "from-command"
    lines = f"model    {folder}\npage     {folder / 'README.md'}\n"
    assert capsys.readouterr().out == lines
    assert {path.name for path in folder.iterdir()} == FILES - {"saved_model"}
