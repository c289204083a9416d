"""Checkpoints of timm, transformers and keras-hub, read and written."""

import dataclasses
import math
import os
import pathlib
import re
from typing import Any

import numpy as np

from zoo.common.safe_text import brief
from zoo.containers import arrays
from zoo.containers.arrays import CheckpointError, OpenFile
from zoo.containers.opening import Collected, read_json
from zoo.libraries import (
    array_names,
    description,
    keras_hub,
    original,
    timm,
    transformers,
)
from zoo.libraries.comparison import BIASES, Shown
from zoo.libraries.library import Library
from zoo.network import VARIANTS, released_names
from zoo.network.released_names import CLASS_TOKEN, POSITION_EMBEDDING

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


def recognise(file: OpenFile | Collected) -> Library | None:
    """Returns the library that names arrays so, None for the released dialects."""
    keys, folder = file.keys, pathlib.Path(file.path).parent
    # Settings of PyTorch's libraries name the network, whatever arrays it has.
    if not (description.METADATA_KEY in file.metadata or any("/" in k for k in keys)):
        settings = folder / timm.CONFIG
        config = read_json(settings)
        for library in LIBRARIES.values():
            library.check_named(settings, config)
    matching = (one for one in LIBRARIES.values() if one.recognises(keys, folder))
    return next(matching, None)


def read(
    file: OpenFile | Collected, library: Library, num_heads: int | None = None
) -> tuple[dict, description.Description]:
    """Reads an open file of another library; `num_heads` if the file does not state it.

    Returns {released name: array, read when it is used}, and a `Description` of the
    rest.
    """
    file = library.whole(file)
    column = library.column(file.keys)
    arrays, problems = _selected(file, library)
    arrays, biases = _unshared(arrays, library)
    problems += library.wrong_values(arrays)
    arrays, apart = array_names.joined(column, library.arranged(arrays))
    # The sizes but the heads, which settings are then compared with.
    parts, wrong = array_names.to_released(column, arrays, num_heads=1)
    if "norm_before_blocks/scale" in parts:
        given = [bias for bias in library.without_biases[:1] if bias in parts]
        wrong += [f"unknown {array_names.foreign_name(column, bias)}" for bias in given]
    _complete(parts, library)
    shapes = {name: part.shape for name, part in parts.items()}
    # Before the settings say which biases there are, those of some blocks mean all.
    norm_missing = not released_names.ENCODER_NORM.keys() & shapes.keys()
    without = {released_names.NO_FINAL_NORM} if norm_missing else set()
    sizes, missing = released_names.measure(shapes, without)
    parts_there = {array_names.whole(name) for name in arrays} - arrays.keys()
    missing = [_in_their_names(column, problem, parts_there) for problem in missing]
    refuse(file.path, problems + apart + wrong + missing, library)
    shown = Shown(
        shapes,
        sizes,
        keys=tuple(file.keys),
        stem=pathlib.Path(file.path).stem,
        biases=biases,
        flat_patches=arrays[array_names.foreign_name(column, _KERNEL)].ndim == 2,
    )
    stated = _description(file, library, shown)
    if stated.config.final_norm is not False and not shown.facts["final_norm"]:
        _, missing = released_names.measure(shapes)
        refuse(file.path, [_in_their_names(column, one) for one in missing], library)
    if stated.pooling == "gap" and shown.facts["attention_pooling"]:
        # timm's SigLIP of a mean leaves the attention pooling of a file out.
        pooling = [name for name in arrays if name.startswith("attn_pool.")]
        arrays = {name: arrays[name] for name in arrays.keys() - pooling}
    heads = _num_heads(file, stated.config.num_heads, num_heads, shown)
    parts, problems = array_names.to_released(
        column, arrays, heads, stated.pooling_heads
    )
    _complete(parts, library)
    refuse(file.path, problems + _ambiguous_positions(parts, stated), library)
    return parts, stated


def refuse(
    path: str | os.PathLike, problems: list[str], library: Library | None = None
) -> None:
    """Raises a `CheckpointError` of problems with a file, if there are any."""
    naming = f"the names of {library.name}" if library else "the released names"
    what = f"a checkpoint of a Vision Transformer under {naming}"
    arrays.refuse(path, what, list(dict.fromkeys(problems)))


def _selected(file, library):
    """Returns {name in `array_names.TABLE`: array} of a model, and the problems."""
    reasons = (
        (reason, next(filter(re.compile(pattern).search, file.keys), None))
        for pattern, reason in library.reasons.items()
    )
    # Reason enough, whatever else is odd.
    refuse(file.path, [f"{reason} ({key})" for reason, key in reasons if key], library)
    arrays: dict[str, Any] = {}
    problems = []
    for key, name in library.select(file.keys).items():
        if "[" in key:
            problems.append(f"unknown {key}")
            continue
        if name in arrays:
            problems.append(f"two arrays for {name}, one is {key}")
        arrays[name] = file.check(key)
    return arrays, problems


def _num_heads(file, stated, given, shown):
    """Returns the heads: as stated, given, shown, or of the paper's network."""
    names = ("hidden_size", "num_layers", "mlp_dim")
    hidden_size, *_ = sizes = tuple(shown.facts[name] for name in names)
    heads = stated or given or shown.facts.get("relative_heads")
    heads = heads or _PAPERS_HEADS.get(sizes)
    if heads is None:
        raise CheckpointError(
            f"{file.path} does not state its number of attention heads: pass "
            "num_heads=N, or keep the config.json beside the file."
        )
    if heads < 1 or hidden_size % heads:
        source = "its header or settings say" if stated else "num_heads says"
        raise CheckpointError(
            f"{file.path} has arrays of hidden size {hidden_size}, which is not a "
            f"multiple of the {brief(heads)} attention heads that {source}: correct "
            "that."
        )
    return heads


def _unshared(arrays, library):
    """Returns arrays with biases of offsets that all blocks share in each of them.

    So BEiT's `run_class_finetuning.py` fine-tunes what was pre-trained with them. A
    block that has its own too adds both. Returns the kind of `BIASES`, too.
    """
    if library.shared_biases is None:
        return arrays, BIASES[False, False]
    shared, own = library.shared_biases
    before, _ = own.split("{}")
    rest = [key.removeprefix(before) for key in arrays if key.startswith(before)]
    tables = [own.format(n) for n in sorted({key.partition(".")[0] for key in rest})]
    biases = BIASES[not arrays.keys().isdisjoint(tables), shared in arrays]
    if shared not in arrays:
        return arrays, biases
    arrays = dict(arrays)
    common = np.asarray(arrays.pop(shared))
    for table in tables:
        array = arrays.get(table)
        if array is not None and array.shape != common.shape:
            arrays[shared] = common  # which is unknown, as it fits no block
        else:
            arrays[table] = common if array is None else np.asarray(array) + common
    return arrays, biases


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


def _in_their_names(library, problem, parts_there=()):
    """Returns a problem with the released name replaced by the file's."""
    first, _, rest = problem.partition(" ")
    if first == "missing":
        theirs = array_names.foreign_name(library, rest) or rest
        part = "a part of " if theirs in parts_there else ""
        return f"missing {part}{theirs}"
    theirs = array_names.foreign_name(library, first)
    return f"{problem}, from {theirs}" if theirs else problem


def _complete(parts, library):
    """Gives CLIP's patch embedding and projection zeros for biases, in place.

    timm has one of the projection.
    """
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
    """Returns what is wrong with a table that may have a row of the class token."""
    covered = stated.config.tokens_with_positions
    is_known = covered == "patches" or stated.grid_size is not None
    if is_known or not {POSITION_EMBEDDING, CLASS_TOKEN} <= parts.keys():
        return []
    rows = parts[POSITION_EMBEDDING].shape[1]
    if math.isqrt(rows) ** 2 != rows:
        return []
    return [
        f"{rows} positions are a square grid without one of the class token, or "
        "another grid with it: keep the settings that state it beside the file"
    ]
