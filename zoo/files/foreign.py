"""Checkpoints of timm, transformers and keras-hub, read and written."""

import dataclasses
import pathlib
import re

import numpy as np

from zoo import released_names
from zoo.files import description, keras_hub, names, original, timm, transformers
from zoo.files.archive import CheckpointError
from zoo.files.comparison import BIASES, Shown
from zoo.files.description import Description
from zoo.files.library import Library
from zoo.network import VARIANTS
from zoo.released_names import POSITION_EMBEDDING
from zoo.text import brief

LIBRARIES = {
    library.name: library
    for library in (
        original.Original(),
        transformers.Transformers(),
        timm.Timm(),
        keras_hub.KerasHub(),
    )
}
WRITTEN = tuple(name for name, library in LIBRARIES.items() if library.is_written)
_PAPERS_HEADS = {
    (row.hidden_size, row.num_layers, row.mlp_dim): row.num_heads
    for row in VARIANTS.values()
}
_KERNEL, _ = released_names.EMBEDDING_ARRAYS
# The files that are read beside the one with the arrays.
BESIDE = tuple(
    dict.fromkeys(name for library in LIBRARIES.values() for name in library.beside)
)


def recognise(file) -> Library | None:
    """Returns the library that names arrays so, None for the released dialects."""
    keys, folder = file.keys, pathlib.Path(file.path).parent
    # Of PyTorch's libraries settings name the network, whatever arrays it has.
    if not (description.METADATA_KEY in file.metadata or any("/" in k for k in keys)):
        _check_known(folder / timm.CONFIG)
    found = (one for one in LIBRARIES.values() if one.recognises(keys, folder))
    return next(found, None)


def _check_known(file):
    """Refuses settings that name a network which is not read."""
    config = description.read_json(file)
    if isinstance(config.get("architecture"), str):
        timm.of_name(file, config["architecture"])
    elif isinstance(config.get("model_type"), str):
        transformers.of_type(file, config["model_type"])


def read(file, library: Library, num_heads: int | None = None):
    """Reads an open file of another library; `num_heads` if the file does not state it.

    Returns {released name: array, read when it is used}, a `Description` of the rest,
    and a list of problems with the arrays.
    """
    holders = library.holders(file)
    column = library.column(holders)
    arrays, problems = _selected(holders, library)
    if not arrays:
        return {}, Description(), problems
    arrays, biases = _unshared(arrays, library)
    arrays, key_biases = library.joined(arrays)
    # The sizes but the heads, which settings are then compared with.
    parts, wrong = names.to_released(column, arrays, num_heads=1)
    _, bias = released_names.EMBEDDING_ARRAYS
    if "norm_before_blocks/scale" in parts and bias in {*parts} & {
        *library.without_biases
    }:
        wrong.append(f"unknown {names.foreign_name(column, bias)}")
    _complete(parts, key_biases, library)
    shapes = {name: part.shape for name, part in parts.items()}
    # Before the settings say which biases there are, those of some blocks mean all.
    norm_missing = not released_names.ENCODER_NORM.keys() & shapes.keys()
    without = {released_names.NO_FINAL_NORM} if norm_missing else set()
    sizes, missing = released_names.measure(shapes, without)
    problems += wrong + [_in_their_names(column, problem) for problem in missing]
    if problems:
        return {}, Description(), list(dict.fromkeys(problems))
    kernel = arrays[names.foreign_name(column, _KERNEL)]
    shown = Shown(
        shapes,
        sizes,
        keys=tuple(holders),
        stem=pathlib.Path(file.path).stem,
        biases=biases,
        flat_patches=kernel.ndim == 2,
    )
    stated = _description(file, library, shown)
    if stated.config.final_norm is not False and not shown.facts["final_norm"]:
        _, missing = released_names.measure(shapes)
        return {}, stated, [_in_their_names(column, problem) for problem in missing]
    if stated.pooling == "gap" and shown.facts["attention_pooling"]:
        # timm's SigLIP of a mean leaves the attention pooling of a file out.
        arrays = {
            name: array
            for name, array in arrays.items()
            if not name.startswith("attn_pool.")
        }
    said = stated.config.num_heads
    heads = said or num_heads or library.known_heads(shown) or _paper_heads(shown)
    _check_heads(file, heads, by_file=bool(said), hidden_size=sizes["hidden_size"])
    parts, problems = names.to_released(column, arrays, heads, stated.pooling_heads)
    _complete(parts, key_biases, library)
    if not problems and shown.facts["class_token"] and POSITION_EMBEDDING in parts:
        problems = _ambiguous_positions(parts, stated)
    return parts, stated, problems


def _selected(holders, library):
    """Returns {name in `names.TABLE`: array} of a model, and a list of problems."""
    problems = []
    for pattern, reason in library.reasons.items():
        key = next(filter(re.compile(pattern).search, holders), None)
        if key is not None:
            problems.append(f"{reason} ({key})")
    if problems:
        return {}, problems  # reason enough for whatever else is odd
    arrays: dict[str, object] = {}
    for key, name in library.select(holders).items():
        if name in arrays:
            problems.append(f"two arrays for {name}, one is {key}")
        arrays[name] = holders[key].check(key)
    return arrays, problems


def _paper_heads(shown):
    """Returns the heads of the paper's network of these sizes, None without one."""
    names = ("hidden_size", "num_layers", "mlp_dim")
    return _PAPERS_HEADS.get(tuple(shown.facts[name] for name in names))


def _check_heads(file, heads, by_file, hidden_size):
    if heads is None:
        raise CheckpointError(
            f"{file.path} does not state its number of attention heads: pass "
            "num_heads=N, or keep the config.json beside the file."
        )
    if heads < 1 or hidden_size % heads:
        source = "its header or settings say" if by_file else "num_heads says"
        raise CheckpointError(
            f"{file.path} has arrays of hidden size {hidden_size}, which is not a "
            f"multiple of the {brief(heads)} attention heads that {source}: correct "
            "that."
        )


def _unshared(arrays, library):
    """Returns arrays with biases of offsets that all blocks share in each of them.

    So BEiT's `run_class_finetuning.py` fine-tunes what was pre-trained with them. A
    block that has its own too adds both. Returns the kind of `BIASES`, too.
    """
    if library.shared_biases is None:
        return arrays, BIASES[False, False]
    shared, own = library.shared_biases
    before, after = own.split("{}")
    is_own = any(key.startswith(before) and key.endswith(after) for key in arrays)
    biases = BIASES[is_own, shared in arrays]
    if shared in arrays:
        arrays = _in_each_block(dict(arrays), shared, own)
    return arrays, biases


def _in_each_block(arrays, shared, table):
    biases = np.asarray(arrays.pop(shared))
    before = table.partition("{}")[0]
    rest = [key.removeprefix(before) for key in arrays if key.startswith(before)]
    for block in sorted({key.partition(".")[0] for key in rest}):
        name = table.format(block)
        own = arrays.get(name)
        if own is not None and own.shape != biases.shape:
            arrays[shared] = biases  # which is unknown, as it fits no block
        else:
            arrays[name] = biases if own is None else np.asarray(own) + biases
    return arrays


def _description(file, library, shown):
    folder = pathlib.Path(file.path).parent
    try:
        stated = description.from_metadata(file.metadata, file.path)
        if stated is None:
            return library.describe(folder, shown)
        if not library.is_written:
            return stated
        # Names can be corrected by hand, and then those of the header are old.
        said = library.head_of(folder, shown)
        said = {name: value for name, value in vars(said).items() if value is not None}
        return stated._replace(head=dataclasses.replace(stated.head, **said))
    except CheckpointError:
        raise
    except description.MALFORMED as error:
        raise CheckpointError(
            f"The settings beside {file.path} in {folder} cannot be read "
            f"({brief(error)})."
        ) from error


def _in_their_names(library, problem):
    """Returns a problem with the released name replaced by the file's."""
    first, _, rest = problem.partition(" ")
    if first == "missing":
        return f"missing {names.foreign_name(library, rest) or rest}"
    theirs = names.foreign_name(library, first)
    return f"{problem}, from {theirs}" if theirs else problem


def _complete(parts, key_biases, library):
    """Gives CLIP's patch embedding and projection zeros for biases, in place.

    timm has one of the projection.

    And takes away biases of keys that only the joining with others has made.
    """
    if not key_biases:
        for name in [name for name in parts if name.endswith("/key/bias")]:
            del parts[name]
    registers = parts.get(released_names.REGISTERS)
    if registers is not None and registers.shape[1:2] == (0,):
        # transformers has an array of none.
        del parts[released_names.REGISTERS]
    if "norm_before_blocks/scale" not in parts:
        return
    for bias in library.without_biases:
        kernel = bias.replace("bias", "kernel")
        if kernel in parts and bias not in parts:
            parts[bias] = np.zeros(parts[kernel].shape[-1:], np.float32)


def _ambiguous_positions(parts, stated):
    rows = parts[POSITION_EMBEDDING].shape[1]
    covered = stated.config.tokens_with_positions
    if covered == "patches" or stated.grid_size is not None:
        return []
    if int(rows**0.5) ** 2 == rows:
        return [
            f"{rows} positions are a square grid without one of the class token, or "
            "another grid with it: keep the settings that state it beside the file"
        ]
    return []
