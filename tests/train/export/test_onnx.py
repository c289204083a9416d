"""What an ONNX file holds, how it is written; see test_export_formats for answers."""

import dataclasses
import json
import os

import keras
import numpy as np
import pytest
from full_disk import full_disk
from small_models import PLAIN, SIZE, made, shared
from written_exports import check

from keras_vit.runtimes.onnx import write
from train.common.errors import RunError
from train.export.onnx import OPSET, write_onnx

onnx = pytest.importorskip("onnx", reason="pip install onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_file_says_what_it_takes_and_gives(precision, tmp_path, capfd):
    model, path = shared(), tmp_path / "model.onnx"
    names = ["cat", "été", 'a "quoted", long name', "4", "5"]
    capfd.readouterr()  # of making the first model
    write_onnx(model, path, precision=precision, class_names=names)
    assert capfd.readouterr() == ("", "")
    onnx.checker.check_model(str(path), full_check=True)
    proto = onnx.load(path)
    [opset] = proto.opset_import
    assert (opset.domain, opset.version) == ("", OPSET)
    assert (proto.producer_name, proto.ir_version) == ("keras_vit", 9)
    session = onnxruntime.InferenceSession(path)
    [taken], [given] = session.get_inputs(), session.get_outputs()
    assert (taken.name, taken.type) == ("images", "tensor(float)")
    assert (given.name, given.type) == ("logits", "tensor(float)")
    assert taken.shape == ["batch", *SIZE, 3] and given.shape == ["batch", 5]
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata.pop("class_names")) == names
    assert metadata == {
        "opset": "20",
        "precision": precision,
        "input_range": "[-1, 1]",
        "activation": "linear",
        "preparation": "squash",
    }


def test_each_weight_is_stored_once_and_by_its_name(tmp_path):
    config = dataclasses.replace(PLAIN, hidden_size=192, mlp_dim=768)
    model, path = made(config), tmp_path / "model.onnx"
    weights = 4 * model.count_params()
    for precision, share in (("float16", 0.5), ("float32", 1)):
        write_onnx(model, path, precision=precision)
        assert share * weights < path.stat().st_size < share * weights + 30_000
    stored = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    for variable in model.variables:
        array = onnx.numpy_helper.to_array(stored[variable.path])
        np.testing.assert_array_equal(array.ravel(), np.ravel(variable))


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float32", 1e-5), ("float16", 1e-2)]
)
def test_large_models_have_their_weights_beside(
    precision, tolerance, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", 10_000)
    folder = tmp_path / "here"
    folder.mkdir()
    for _ in range(2):
        write_onnx(shared(), folder / "model.onnx", precision=precision)
    assert sorted(os.listdir(folder)) == ["model.onnx", "model.onnx.data"]
    weights = np.dtype(precision).itemsize * shared().count_params()
    assert (folder / "model.onnx.data").stat().st_size >= weights
    path = folder.rename(tmp_path / "there") / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        for entry in tensor.external_data:
            assert entry.key != "offset" or int(entry.value) % 4096 == 0
    check(path, shared(), tolerance)


def test_an_unknown_layer_is_refused_before_a_file_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", 0)
    last = keras.layers.LayerNormalization(name="last")
    model = keras.Model(shared().input, last(shared().output))
    with pytest.raises(ValueError, match="'last' is a LayerNormalization"):
        write(model, tmp_path / "model.onnx")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("largest", [10_000, 10**9])
def test_a_failure_leaves_the_older_file(largest, tmp_path, monkeypatch):
    # The folder of the file is all that is needed.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "full"))
    monkeypatch.setattr("keras_vit.runtimes.onnx.LARGEST_FILE", largest)
    path = tmp_path / "model.onnx"
    write_onnx(shared(), path)
    with pytest.raises(RunError, match=r"Cannot write .*No such.*--out"):
        write_onnx(shared(), tmp_path / "nowhere" / "model.onnx")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(onnx.checker, "check_model", fail)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(shared(), path, precision="float16")
    with full_disk(1000), pytest.raises(RunError, match="Cannot write .* too large"):
        write_onnx(shared(), path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("pooling", "slices"), [("token", 3), (None, 0)])
def test_tokens_that_nobody_uses_are_not_computed(pooling, slices, tmp_path):
    """One slice of the queries and the shortcut in the last block, and the pooling."""
    model = made(include_top=False, pooling=pooling)
    write_onnx(model, tmp_path / "model.onnx")
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert sum(node.op_type == "Slice" for node in nodes) == slices
