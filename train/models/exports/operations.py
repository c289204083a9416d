"""The operations of a SavedModel, compared with those of ours before it is loaded.

A SavedModel is a program: some operations read and write files, or open connections,
already while it is loaded.
"""

import os
import pathlib
import re

from train.common.errors import RunError, first_line
from train.models.exports import tensorflow
from zoo.common.limits import GRAPH_BYTES
from zoo.common.regular_files import read_bytes, read_text
from zoo.common.safe_text import named

# Operations in the exports of tests/small_models.py and others that only compute
# numbers, one per line.
_FILE = pathlib.Path(__file__).with_name("operations.txt")
# TensorFlow's own functions that save and restore variables may have these.
_SAVING = {"MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"}
_SAVER = re.compile(r"__inference_(_traced_(?:save|restore))_\d+")


def check(folder: str | os.PathLike) -> None:
    """Refuses a SavedModel with operations that no export of ours has, or huge tensors.

    Nothing of it is run. The message of the `RunError` names the operations.
    """
    model = _parsed(folder)
    if unknown := sorted(_all_operations(model) - known()):
        raise RunError(
            f"The SavedModel {folder} has operations that those of keras-vit export do "
            f"not have, and which may do anything: {named(unknown)}. If you trust who "
            "made it, pass trust=True."
        )
    try:
        tensorflow.check_sizes(model)
    except ValueError as error:
        raise RunError(
            f"The SavedModel {folder} cannot be used ({first_line(error)}): export it "
            "again."
        ) from error


def known() -> set[str]:
    """Returns the names of the operations of our exports."""
    return set(read_text(_FILE, GRAPH_BYTES).split())


def _parsed(folder):
    from tensorflow.core.protobuf import saved_model_pb2

    file = pathlib.Path(folder, "saved_model.pb")
    try:
        return saved_model_pb2.SavedModel.FromString(read_bytes(file, GRAPH_BYTES))
    # The exception depends on the implementation of protobuf.
    except Exception as error:
        raise RunError(
            f"The SavedModel {folder} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): copy or export it again."
        ) from error


def _all_operations(model):
    operations = set()
    for meta_graph in model.meta_graphs:
        # Otherwise loading runs the graph and not the objects.
        has_objects = meta_graph.HasField("object_graph_def")
        is_run = has_objects and len(model.meta_graphs) == 1
        operations |= _operations(
            meta_graph, _idle_savers(meta_graph) if is_run else ()
        )
    return operations


def _operations(meta_graph, idle_savers):
    graph = meta_graph.graph_def
    operations = {node.op for node in graph.node}
    for function in graph.library.function:
        own = {node.op for node in function.node_def}
        operations |= own - _SAVING if function.signature.name in idle_savers else own
    return operations


def _idle_savers(meta_graph):
    """Returns the names of the functions that TensorFlow alone would call, to save.

    Nodes of the graph that `saver_def` names call them, which loading does not run. All
    else that could call them, objects, signatures, gradients, collections, attributes
    of any depth, has their names, which are runs of bytes in a serialized message.
    """
    stripped = type(meta_graph)()
    stripped.CopyFrom(meta_graph)
    saver, graph = stripped.saver_def, stripped.graph_def
    calls = {saver.save_tensor_name.partition(":")[0], saver.restore_op_name}
    nodes = [node for node in graph.node if node.name in calls and "f" in node.attr]
    names = {node.attr["f"].func.name for node in nodes}
    names = set(filter(_SAVER.fullmatch, names))
    _remove(graph.node, lambda node: node.name in calls)
    _remove(graph.library.function, lambda one: one.signature.name in names)
    content = stripped.SerializeToString()
    # Loading changes the numbers, and new ones could be guessed. Of two functions, one
    # could call the other.
    parts = {_SAVER.fullmatch(name)[1].encode() for name in names}
    return set() if any(part in content for part in parts) else names


def _remove(messages, is_removed):
    for index in reversed(range(len(messages))):
        if is_removed(messages[index]):
            del messages[index]
