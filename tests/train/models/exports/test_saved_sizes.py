"""Sizes in a SavedModel are bounded before TensorFlow takes memory."""

import pytest

from train.common.errors import RunError
from train.models.exports import exported_model, graph_sizes, tensorflow

tf = pytest.importorskip("tensorflow")

from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402

HUGE = [10**6, 10**5]


def answer(images):
    return {"logits": tf.zeros((tf.shape(images)[0], 2)) + tf.constant([1.0, 2.0])}


def model_of(function):
    """Returns the message of a SavedModel with the operations of a function."""
    graph = tf.function(function, []).get_concrete_function().graph.as_graph_def()
    model = saved_model_pb2.SavedModel()
    model.meta_graphs.add().graph_def.CopyFrom(graph)
    return model


def stretched():
    images = tf.image.resize(tf.zeros([1, 2, 2, 3]), [50_000, 50_000])
    return tf.shape(images)


SIZES = {
    "filled": lambda: tf.fill(HUGE, 1.0),
    "broadcast": lambda: tf.broadcast_to(tf.ones([]), HUGE),
    "tiled": lambda: tf.tile(tf.ones([100, 1]), [2**12, 2**14]),
    "tiled twice": lambda: tf.tile(tf.tile(tf.ones([9]), [2**16]), [2**16]),
    "counted": lambda: tf.range(0.0, 1e6, 1e-6),
    "padded": lambda: tf.pad(tf.ones([2, 3]), [[2**15, 0], [0, 2**16]]),
    "stretched": stretched,
    "random": lambda: tf.random.stateless_uniform(HUGE, [1, 2]),
    "of many": lambda: tf.fill(tf.stack([tf.constant(10**6), 10**5]), 1.0),
    "joined": lambda: tf.fill(tf.concat([tf.constant([10**6]), [10**5]], 0), 1.0),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_a_saved_model_computes_of_constants_are_bounded(name):
    model = model_of(SIZES[name])
    nodes = model.meta_graphs[0].graph_def.node
    for _ in range(2):
        with pytest.raises(ValueError, match="it would compute .* numbers at once"):
            tensorflow.check_sizes(model)
        # Nodes may be in any order.
        turned = [*reversed(nodes)]
        del nodes[:]
        nodes.extend(turned)


def test_small_sizes_of_a_saved_model_pass():
    def small():
        images = tf.image.resize(tf.zeros([1, 2, 2, 3]), [500, 500])
        return tf.tile(tf.pad(images, [[0, 0], [9, 9], [9, 9], [0, 0]]), [8, 1, 1, 1])

    tensorflow.check_sizes(model_of(small))


@pytest.mark.parametrize("kind", [tf.resource.as_datatype_enum, 777])
def test_constants_without_numbers_are_left_to_tensorflow(kind):
    model = model_of(SIZES["filled"])
    constants = (n for n in model.meta_graphs[0].graph_def.node if n.op == "Const")
    for node in constants:
        node.attr["value"].tensor.dtype = kind
    tensorflow.check_sizes(model)


@pytest.mark.parametrize("kind", ["Const", "VarHandleOp"])
def test_a_huge_tensor_of_a_saved_model_is_refused_before_it_is_loaded(
    kind, tmp_path, monkeypatch
):
    package = tf.train.Checkpoint(weight=tf.Variable([1.0]))
    tf.saved_model.save(
        package,
        str(tmp_path),
        tf.function(answer, [tf.TensorSpec((None, 8, 8, 3))]),
    )
    assert exported_model.load(tmp_path).size == 2
    file = tmp_path / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graph = model.meta_graphs[0].graph_def
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    node = next(node for node in nodes if node.op == kind)
    value = node.attr["value"].tensor.tensor_shape
    shape = value if kind == "Const" else node.attr["shape"].shape
    del shape.dim[:]
    for side in HUGE:
        shape.dim.add(size=side)
    file.write_bytes(model.SerializeToString())
    monkeypatch.setattr(tf.saved_model, "load", None)
    with pytest.raises(RunError, match="cannot be used .it would compute 1,000,000 x"):
        exported_model.load(tmp_path)


def test_paddings_of_tensorflow_are_put_in_the_order_of_onnx():
    constants = {"b": [1, 2, 3, 4]}
    node = graph_sizes.tensorflow_node("Pad", ["a", "b"], ["c"], {}, constants)
    assert constants[node.inputs[1]] == [1, 3, 2, 4]
