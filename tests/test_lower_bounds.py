"""Attacks that decide the lower bounds in setup.cfg: no file reads or empties others.

filelock before 3.20.1 empties the target of a link, ONNX Runtime before 1.24.1 reads
weights outside the model's folder, Keras before 3.14.1 (but 3.12.2 to 3.12.4) what HDF5
files refer to.

Other bounds have their tests elsewhere: Pillow before 11.0 cuts off TIFFs that it turns
upright, filelock before 3.30 empties the lock that says who holds it, TensorFlow
Datasets before 4.9.10 cannot be used with protobuf 7, int8 in OpenVINO before 2026.1 is
wrong, and that before 2026.3 does not read models for images of any size.
"""

import os
import zipfile

import filelock
import h5py
import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from train.common.errors import RunError
from train.models import keras_files

SECRET = np.arange(12, dtype="float32").reshape(3, 4)


@pytest.fixture
def secret(tmp_path):
    """A file of numbers outside of the model's folder."""
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_bytes(SECRET.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["0"] = SECRET
    return tmp_path / "secret"


@pytest.mark.skipif(os.name != "posix", reason="links need a privilege on Windows")
def test_a_lock_does_not_empty_the_target_of_a_link(secret):
    link = secret.parent / "model" / ".lock"
    link.symlink_to(secret)
    for kind in (filelock.FileLock, filelock.SoftFileLock):
        with pytest.raises((OSError, filelock.Timeout)), kind(link, timeout=0):
            pass
        assert secret.read_bytes() == SECRET.tobytes()


@pytest.mark.parametrize("location", ["../secret", "{secret}", "link"])
def test_onnx_weights_outside_of_the_models_folder_are_not_read(secret, location):
    folder = secret.parent / "model"
    (folder / "link").symlink_to(secret)
    weight = onnx.TensorProto(name="w", data_type=1, dims=SECRET.shape, data_location=1)
    weight.external_data.add(key="location", value=location.format(secret=secret))
    values = [
        helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", [1, 3]), ("y", [1, 4]))
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weight])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(Exception, match="(?i)external data"):
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def external(group, secret):
    group.create_dataset("0", SECRET.shape, "f4", external=[(str(secret), 0, 48)])


def link(group, secret):
    group["0"] = h5py.ExternalLink(f"{secret}.h5", "/0")


def virtual(group, secret):
    layout = h5py.VirtualLayout(SECRET.shape, "f4")
    layout[:] = h5py.VirtualSource(f"{secret}.h5", "0", shape=SECRET.shape)
    group.create_virtual_dataset("0", layout)


@pytest.mark.parametrize("refer", [external, link, virtual])
def test_keras_files_do_not_read_what_their_hdf5_refers_to(secret, refer):
    path, weights = (secret.parent / "model" / name for name in ("m.keras", "w.h5"))
    inputs = keras.Input((3,))
    keras.Model(inputs, keras.layers.Dense(4, name="dense")(inputs)).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    weights.write_bytes(members["model.weights.h5"])
    with h5py.File(weights, "a") as file:
        group = file["layers/dense/vars"]
        del group["0"]
        refer(group, secret)
    members["model.weights.h5"] = weights.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(RunError, match="cannot be used"):
        keras_files.load_model(path)
