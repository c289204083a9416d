"""What exported files say of their model, found and read without Keras."""

import re
import shutil
import tracemalloc
import zipfile

import numpy as np
import pytest
from small_models import PLAIN, made, of, shared
from written_exports import images_for, write

from train.common.errors import RunError
from train.export.formats import FORMATS
from train.models.exports import description, exported_model, writing

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")
NAMES = ("cat", "été", "white shark", "4", "")
KINDS = ("saved_model", "tflite", "onnx")


@pytest.fixture(scope="module", params=KINDS)
def sigmoid(request, tmp_path_factory):
    """An export with a sigmoid and central crop, found and loaded, and its model."""
    model = made(**of(PLAIN, num_layers=1), classifier_activation="sigmoid")
    model.layers[-1].preparation = "central crop"
    folder = tmp_path_factory.mktemp("exports") / request.param
    write(request.param, model, folder, class_names=NAMES)
    path = exported_model.find(str(folder))
    assert path == folder / FORMATS[request.param].file == exported_model.find(path)
    return request.param, path, exported_model.load(path), model


def test_an_export_says_all_that_answers_need(sigmoid):
    kind, path, found, model = sigmoid
    assert found.image_shape == (32, 48, 3) and found.size == 5
    assert found.class_names == NAMES
    assert (found.activation, found.preparation) == ("sigmoid", "central crop")
    images = images_for(model)
    outputs = found.run(images)
    if found.output == "logits":
        outputs = 1 / (1 + np.exp(-outputs))
    else:
        assert (kind, found.output) == ("onnx", "probabilities")
    np.testing.assert_allclose(outputs, model(images), atol=2e-5)
    assert found.one_by_one == (kind == "tflite")
    assert re.match(r"(TensorFlow|LiteRT|ONNX Runtime) \d+\.\d+", found.version)
    assert (found.features is None) == (kind != "saved_model")
    if found.features:
        body, _ = writing.body_and_head(model)
        np.testing.assert_allclose(found.features(images), body(images), atol=2e-5)
    # The digest is of the bytes.
    known, some = exported_model.digest_of(path), exported_model.files_of(path)[-1]
    assert known == exported_model.digest_of(path)
    content = some.read_bytes()
    some.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert exported_model.digest_of(path) != known
    some.write_bytes(content)


@pytest.mark.parametrize("shape", [(3, 48, 48, 3), (3, 32, 48, 1)])
def test_images_that_the_graph_does_not_take_are_a_clear_error(shape, sigmoid):
    _, path, found, _ = sigmoid
    with pytest.raises(RunError) as caught:
        found.run(np.zeros(shape, "float32"))
    message = str(caught.value)
    assert str(path) in message and str(shape[1:]) in message
    assert message.endswith("export it again.") and "\n" not in message


@pytest.fixture
def onnx_file(tmp_path):
    return write("onnx", shared(), tmp_path / "plain")


def test_class_names_lie_beside_the_file(onnx_file, tmp_path):
    names = onnx_file.parent / "class_names.txt"
    assert exported_model.load(onnx_file).class_names is None
    names.write_text("a\nb\nc\nd\ne\n")
    assert exported_model.load(onnx_file).class_names == tuple("abcde")
    names.write_text("a\nb\n")
    with pytest.raises(RunError, match="has 5 classes and 2 class names"):
        exported_model.load(onnx_file)
    # Features have no classes.
    features = write("onnx", shared("without head"), tmp_path / "features")
    shutil.copy(names, features.parent)
    found = exported_model.load(features)
    assert (found.output, found.size, found.class_names) == ("features", 24, None)


def test_the_export_in_a_folder_is_found(tmp_path):
    for other in ("vit-ti16/augreg-imagenet21k", tmp_path):
        assert exported_model.find(other) is None
    with pytest.raises(RunError, match="There is no file .*none.tflite"):
        exported_model.find("none.tflite")
    # The newest version that is served.
    for version in ("2", "10", "not"):
        folder = tmp_path / "saved_model" / version
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").touch()
    assert exported_model.find(tmp_path).name == "10"
    assert exported_model.find(tmp_path / "saved_model").name == "10"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("preparation", "new", "not as keras-vit export writes it.*new"),
        ("activation", "tanh", "not as keras-vit export writes it.*tanh"),
        ("image_size", "1,100000", "its images"),
        ("image_size", "0,0", "its images"),
        ("class_names", "[1, 2, 3, 4, 5]", "not a list of texts.*export"),
        ("class_names", '{"a": 1}', "class_names are not a list of texts"),
    ],
)
def test_metadata_of_others_are_refused(name, value, told, onnx_file):
    proto = onnx.load(onnx_file)
    known = {entry.key: entry.value for entry in proto.metadata_props}
    onnx.helper.set_model_props(proto, known | {name: value})
    onnx.save(proto, onnx_file)
    with pytest.raises(RunError, match=told):
        exported_model.load(onnx_file)


@pytest.fixture(scope="module")
def tflite_file(tmp_path_factory):
    return write("tflite", shared(), tmp_path_factory.mktemp("tflite"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (description.LABELS, bytes(2**25), "has more than"),
        (description.FACTS, bytes(2**25), "has more than"),
        (description.FACTS, "[]", "its facts are not a table of texts"),
        (description.FACTS, '{"image_size": 32}', "its facts are not a table of texts"),
    ],
)
def test_texts_packed_into_a_tflite_file_are_checked_and_bounded(
    name, content, told, tflite_file, tmp_path
):
    path = tmp_path / "model.tflite"
    shutil.copyfile(tflite_file, path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    tracemalloc.start()
    with pytest.raises(RunError, match=told):
        exported_model.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26


def test_outputs_for_each_token_are_refused_by_name(tmp_path):
    path = write("onnx", shared("all tokens"), tmp_path / "tokens")
    with pytest.raises(RunError, match=r"tokens/.* outputs of shape \(25, 24\) fo"):
        exported_model.load(path)


def test_onnx_runtime_is_told_to_write_no_telemetry(onnx_file, monkeypatch):
    calls, session = [], runtime.InferenceSession
    monkeypatch.setattr(runtime, "disable_telemetry_events", lambda: calls.append(1))
    monkeypatch.setattr(
        runtime, "InferenceSession", lambda *_, **__: calls.append(2) or session(*_)
    )
    exported_model.load(onnx_file)
    assert calls == [1, 2]


def test_a_missing_runtime_is_named(onnx_file, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RunError, match="needs onnxruntime, which is not installed"):
        exported_model.load(onnx_file)
