"""The operations of a SavedModel, compared with those of ours before it is loaded.

A SavedModel is a program: some operations read and write files, or open connections,
already while it is loaded.
"""

import pathlib
import re

from train.common.errors import RunError, first_line
from zoo.limits import GRAPH_BYTES
from zoo.regular_files import read_bytes, read_text
from zoo.text import named

# Those of the exports of the models of tests/small_models.py and others that compute
# numbers alone, one per line.
_SAVING = {"MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"}
_SAVER = re.compile(r"__inference__traced_(save|restore)_\d+")
_FILE = pathlib.Path(__file__).with_name("saved_operations.txt")


def check(folder):
    """Refuses a SavedModel with operations that no export of ours has.

    Nothing of it is run.

    Args:
        folder: path of the SavedModel.

    Raises:
        RunError: it cannot be read, or has other operations, which the message names.
    """
    if unknown := sorted(read(folder) - known()):
        raise RunError(
            f"The SavedModel {folder} has operations that those of keras-vit export do "
            f"not have, and which may do anything: {named(unknown)}. If you trust who "
            "made it, pass trust=True."
        )


def known():
    """Returns the names of the operations of our exports, a set of str."""
    return set(read_text(_FILE, GRAPH_BYTES).split())


def read(folder):
    """Returns the names of all operations in a SavedModel, a set of str.

    Those of its functions count, too. Arguments and errors are those of `check`.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    file = pathlib.Path(folder, "saved_model.pb")
    try:
        model = saved_model_pb2.SavedModel.FromString(read_bytes(file, GRAPH_BYTES))
    # Which exception it is depends on the implementation of protobuf.
    except Exception as error:
        raise RunError(
            f"The SavedModel {folder} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): copy or export it again."
        ) from error
    found = set()
    for meta_graph in model.meta_graphs:
        found |= _operations(meta_graph)
    return found


def _operations(meta_graph):
    graph = meta_graph.graph_def
    functions = {one.signature.name: one for one in graph.library.function}
    called = set(meta_graph.object_graph_def.concrete_functions)
    for name, function in functions.items():
        called |= {one for one in _called(function.node_def) if one != name}
    # TensorFlow writes functions that save and restore the variables, and loading runs
    # neither these nor the graph that calls them: where there are objects, and nothing
    # else refers to them.
    is_idle = bool(meta_graph.object_graph_def.nodes)
    found = {node.op for node in graph.node} - functions.keys()
    if is_idle:
        found -= _SAVING
    for name, function in functions.items():
        own = {node.op for node in function.node_def} - functions.keys()
        if is_idle and _SAVER.fullmatch(name) and name not in called:
            own -= _SAVING
        found |= own
    return found


def _called(nodes):
    """Yields the names of the functions that nodes call."""
    for node in nodes:
        yield node.op
        for value in node.attr.values():
            yield value.func.name
            yield from (one.name for one in value.list.func)
