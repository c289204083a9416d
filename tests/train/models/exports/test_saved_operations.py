"""SavedModels that do more than ours are refused before anything of them runs."""

import pytest
import tensorflow as tf
from small_models import PLAIN, made, of
from tensorflow.core.protobuf import saved_model_pb2

import keras_vit
from train.common.errors import RunError
from train.models.exports import exported_model, operations
from train.models.exports.saved_model import write_saved_model

IMAGES = tf.TensorSpec((None, 32, 48, 3))


def answer(images):
    return {"logits": tf.zeros((tf.shape(images)[0], 2))}


def saved_to(folder, *functions):
    """Saves a model with functions besides its answer."""
    package = tf.train.Checkpoint(weight=tf.Variable([1.0]))
    for number, function in enumerate(functions):
        setattr(package, f"function_{number}", tf.function(function, []))
    tf.saved_model.save(package, str(folder), tf.function(answer, [IMAGES]))
    return folder


def saves(path):
    weights = [tf.constant([1.0])]
    names = {"tensor_names": ["x"], "shape_and_slices": [""]}
    tf.raw_ops.SaveV2(prefix=str(path), tensors=weights, **names)


def writes(path):
    tf.io.write_file(str(path), "x")


def writes_in_a_map(path):
    def write(number):
        writes(path)
        return number

    return tf.data.Dataset.range(3).map(write).reduce(0, lambda _, number: 1)


@pytest.mark.parametrize(
    ("function", "told"),
    [(saves, "SaveV2"), (writes, "WriteFile"), (writes_in_a_map, "MapDa.*WriteFile")],
)
def test_a_model_that_writes_is_named_and_loaded_with_trust_alone(
    function, told, tmp_path
):
    written = tmp_path / "written"
    folder = saved_to(tmp_path / "model", lambda: function(written))
    with pytest.raises(RunError, match=rf"{told}.*trust=True"):
        exported_model.load(folder)
    assert exported_model.load(folder, trust=True).size == 2
    assert not list(tmp_path.glob("written*"))


class Saved:
    """A SavedModel as a message, and the names of its functions of TensorFlow."""

    def __init__(self, folder):
        self.file = folder / "saved_model.pb"
        self.model = saved_model_pb2.SavedModel.FromString(self.file.read_bytes())
        [self.meta_graph] = self.model.meta_graphs
        self.graph = self.meta_graph.graph_def
        saver = self.meta_graph.saver_def
        self.saves, self.restores = (
            next(node for node in self.graph.node if node.name == name).attr["f"].func
            for name in (saver.save_tensor_name[:-2], saver.restore_op_name)
        )

    def function(self, part):
        functions = self.graph.library.function
        return next(one for one in functions if part in one.signature.name)

    def write(self):
        self.file.write_bytes(self.model.SerializeToString())


# Each makes something call the function that saves, which nothing calls in our files.


def by_a_bare_function(saved, name=None):
    """Loading runs it where a resource is initialized by it."""
    node = saved.meta_graph.object_graph_def.nodes.add()
    node.bare_concrete_function.concrete_function_name = name or saved.saves.name


def by_the_function_that_restores(saved):
    call = saved.function(saved.restores.name).node_def.add(name="call")
    call.attr["f"].func.name = saved.saves.name
    by_a_bare_function(saved, saved.restores.name)


def by_the_start_of_a_graph(saved):
    """As TensorFlow 1 has written it, without objects: loading runs the graph."""
    saved.meta_graph.ClearField("object_graph_def")


def by_a_gradient(saved):
    name = saved.function("answer").signature.name
    saved.graph.library.gradient.add(function_name=name, gradient_func=saved.saves.name)


def by_an_attribute_of_an_attribute(saved):
    node = saved.function("signature_wrapper").node_def[0]
    node.attr["f"].func.attr["then"].list.func.add(name=saved.saves.name)


def by_its_next_name(saved):
    node = saved.function("signature_wrapper").node_def[0]
    node.attr["f"].func.attr["then"].func.name = "__inference__traced_save_7"


def by_an_operation_of_its_name(saved):
    saved.function("answer").node_def.add(name="x", op=saved.saves.name)


def in_a_second_graph(saved):
    saved.model.meta_graphs.add().CopyFrom(saved.meta_graph)


def in_the_graph(saved):
    saved.graph.node.extend(saved.function(saved.saves.name).node_def)


ATTACKS = [
    *(by_a_bare_function, by_the_function_that_restores, by_the_start_of_a_graph),
    *(by_a_gradient, by_an_attribute_of_an_attribute, by_its_next_name),
    *(by_an_operation_of_its_name, in_a_second_graph, in_the_graph),
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_function_that_saves_is_refused_where_anything_calls_it(
    attack, tmp_path, monkeypatch
):
    folder = saved_to(tmp_path / "model")
    assert exported_model.load(folder).size == 2
    saved = Saved(folder)
    attack(saved)
    saved.write()
    monkeypatch.setattr(tf.saved_model, "load", None)
    with pytest.raises(RunError, match=r"SaveV2.*trust=True"):
        exported_model.load(folder)


def test_a_function_of_the_name_of_an_operation_is_no_excuse_for_it(tmp_path):
    folder = saved_to(tmp_path / "model", lambda: tf.io.read_file("x"))
    saved = Saved(folder)
    saved.graph.library.function.add().signature.name = "ReadFile"
    saved.write()
    with pytest.raises(RunError, match="do not have.*ReadFile"):
        exported_model.load(folder)


def test_operations_of_keras_and_of_int8_weights_are_known(tmp_path):
    """Those of other models are in test_saved_model and test_families_tools."""
    model = made(**of(PLAIN, num_layers=1))
    model.export(tmp_path / "keras", verbose=False)
    write_saved_model(keras_vit.quantize_weights(model), tmp_path / "int8")
    for name in ("keras", "int8"):
        operations.check(tmp_path / name)
