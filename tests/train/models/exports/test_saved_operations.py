"""SavedModels that do more than ours are refused before anything of them runs."""

import contextlib
import shutil

import pytest
import tensorflow as tf
from small_models import made
from tensorflow.core.protobuf import saved_model_pb2

import keras_vit
from train.common.errors import RunError
from train.models.exports import exported_model, operations
from train.models.exports.saved_model import write_saved_model

IMAGES = tf.TensorSpec((None, 32, 48, 3))
# As TensorFlow calls the function that saves variables.
EVIL = "__inference__traced_save_999"


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


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a model with a function that writes, and what it would write."""
    folder = tmp_path_factory.mktemp("base")
    written = folder / "written"

    def evil():
        saves(written)

    return saved_to(folder / "model", evil), written


@pytest.fixture
def written(base):
    """The path of what would be written, which is removed after the test."""
    yield base[1]
    for file in base[1].parent.glob("written*"):
        file.unlink()


# Models written with other operations; others are in test_saved_model and
# test_families_tools.
OURS = {
    "classifier": made,
    "of any size": lambda: keras_vit.at_image_size(made(), (None, None)),
    "int8": lambda: keras_vit.quantize_weights(made()),
}


class Attacked:
    """A SavedModel whose own function that saves writes a file wherever it is called.

    No object has it, and the nodes that TensorFlow saves by call it.
    """

    def __init__(self, folder):
        self.file = folder / "saved_model.pb"
        self.model = saved_model_pb2.SavedModel.FromString(self.file.read_bytes())
        [self.meta_graph] = self.model.meta_graphs
        self.graph = self.meta_graph.graph_def
        self.objects = self.meta_graph.object_graph_def
        [old] = [one for one in self.objects.concrete_functions if "evil" in one]
        del self.objects.concrete_functions[old]
        for node in self.objects.nodes:
            if old in str(node):
                node.Clear()
                node.user_object.identifier = "_generic_user_object"
        evil = self.function(old)
        evil.signature.name = EVIL
        # So that it is run, too, where another function calls it.
        evil.signature.control_output.append("saved")
        evil.control_ret["saved"] = "SaveV2"
        saver = self.meta_graph.saver_def.save_tensor_name.removesuffix(":0")
        own = self.node(saver).attr["f"].func
        self.graph.library.function.remove(self.function(own.name))
        own.name = EVIL

    def save(self):
        self.file.write_bytes(self.model.SerializeToString())
        return self.file.parent

    def function(self, part):
        functions = self.graph.library.function
        return next(one for one in functions if part in one.signature.name)

    def node(self, name):
        return next(node for node in self.graph.node if node.name == name)

    def add_object(self, **children):
        """Adds an object, whose children have these numbers; returns its own."""
        number = len(self.objects.nodes)
        self.objects.nodes.add()
        self.objects.nodes[0].children.add(node_id=number, local_name=f"n{number}")
        for name, child in children.items():
            self.objects.nodes[number].children.add(node_id=child, local_name=name)
        return number

    def add_bare(self, name=EVIL):
        number = self.add_object()
        node = self.objects.nodes[number]
        node.bare_concrete_function.concrete_function_name = name
        return number

    def run_by_loading(self, function):
        """Adds a resource, which loading makes and initializes by a function."""
        number = self.add_object(_create_resource=function, _initialize=function)
        self.objects.nodes[number].resource.device = ""


def by_a_bare_function(attacked):
    attacked.run_by_loading(attacked.add_bare())


def by_the_function_that_restores(attacked):
    saver = attacked.function("_traced_restore")
    saver.Clear()
    saver.signature.name = name = "__inference__traced_restore_1000"
    restore = attacked.node(attacked.meta_graph.saver_def.restore_op_name)
    restore.attr["f"].func.name = name
    call(saver.node_def.add(name="call"))
    saver.signature.control_output.append("call")
    saver.control_ret["call"] = "call"
    attacked.run_by_loading(attacked.add_bare(name))


def by_the_start_of_a_graph(attacked):
    """As TensorFlow 1 has written it, without objects."""
    attacked.meta_graph.ClearField("object_graph_def")
    attacked.meta_graph.ClearField("saver_def")
    attacked.meta_graph.ClearField("signature_def")
    del attacked.graph.node[:]
    call(attacked.graph.node.add(name="start"))
    starts = attacked.meta_graph.collection_def["saved_model_main_op"]
    starts.node_list.value[:] = ["start"]


def call(node):
    """Makes a node of a graph one that calls the function."""
    node.op = "StatefulPartitionedCall"
    node.attr["f"].func.name = EVIL
    for name in ("Tin", "Tout"):
        node.attr[name].list.SetInParent()


def by_a_gradient(attacked):
    attacked.graph.library.registered_gradients.add(
        gradient_func=EVIL, registered_op_type="CustomGradient-1"
    )
    node = attacked.function("answer").node_def[0]
    node.attr["_gradient_op_type"].s = b"CustomGradient-1"


def by_its_next_name(attacked):
    node = attacked.function("signature_wrapper").node_def[0]
    node.attr["f"].func.attr["then"].func.name = "__inference__traced_save_7"


def by_an_operation_of_its_name(attacked):
    attacked.function("answer").node_def.add(name="x", op=EVIL)


def in_a_second_graph(attacked):
    attacked.model.meta_graphs.add().CopyFrom(attacked.meta_graph)


def in_the_graph(attacked):
    for node in attacked.function(EVIL).node_def:
        attacked.graph.node.add().CopyFrom(node)


# Loading the first three writes, which shows that the attack is one.
LOADED = by_a_bare_function, by_the_function_that_restores, by_the_start_of_a_graph
OTHERS = (
    *(by_a_gradient, by_its_next_name, by_an_operation_of_its_name),
    *(in_a_second_graph, in_the_graph),
)


@pytest.fixture
def attacked(base, tmp_path):
    shutil.copytree(base[0], tmp_path / "model")
    return Attacked(tmp_path / "model")


@pytest.mark.parametrize("attack", [*LOADED, *OTHERS])
def test_a_function_that_saves_is_refused_where_anything_calls_it(
    attack, attacked, written
):
    attack(attacked)
    folder = attacked.save()
    with pytest.raises(RunError, match=r"SaveV2.*trust=True"):
        exported_model.load(folder)
    assert not list(written.parent.glob("written*"))
    if attack in LOADED:
        with contextlib.suppress(RunError):
            exported_model.load(folder, trust=True)
        assert list(written.parent.glob("written*"))


def test_functions_that_nothing_calls_may_save(attacked):
    assert exported_model.load(attacked.save()).size == 2


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


def test_a_function_of_the_name_of_an_operation_is_no_excuse_for_it(tmp_path):
    folder = saved_to(tmp_path / "model", lambda: tf.io.read_file("x"))
    file = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    library = model.meta_graphs[0].graph_def.library
    library.function.add().signature.name = "ReadFile"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(RunError, match="do not have.*ReadFile"):
        exported_model.load(folder)


@pytest.mark.parametrize("kind", OURS)
def test_operations_of_our_saved_models_and_of_keras_are_known(kind, tmp_path):
    model = OURS[kind]()
    write_saved_model(model, tmp_path / "own")
    operations.check(tmp_path / "own")
    if kind == "classifier":
        model.export(tmp_path / "keras", verbose=False)
        operations.check(tmp_path / "keras")
