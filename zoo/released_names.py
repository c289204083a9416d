"""The names and shapes of the arrays in a released checkpoint.

Every name of a released array is written here and nowhere else. A shape is a tuple of
sizes; a size is an int, the name of a quantity ("hidden_size") that must be the same
wherever it appears, or an (int, name) product.
The names are those of the files in ``gs://vit_models`` (written by Flax before its
Linen API); `zoo.files.dialects` translates the others.
"""

import functools
import math
import re

CLASS_TOKEN = "cls"
POSITION_EMBEDDING = "Transformer/posembed_input/pos_embedding"
# Ours: no released file has it, and only files with a non-square grid need it.
GRID_SIZE = "Transformer/posembed_input/grid_size"
BLOCK = "Transformer/encoderblock"
HEAD_ARRAYS = {
    "head/kernel": ("features", "classes"),
    "head/bias": ("classes",),
}
PRE_LOGITS_ARRAYS = {
    "pre_logits/kernel": ("hidden_size", "representation_size"),
    "pre_logits/bias": ("representation_size",),
}
HEADS = HEAD_ARRAYS.keys() | PRE_LOGITS_ARRAYS.keys()
EMBEDDING_ARRAYS = {
    "embedding/kernel": ("patch_height", "patch_width", "channels", "hidden_size"),
    "embedding/bias": ("hidden_size",),
}
ENCODER_ARRAYS = {
    POSITION_EMBEDDING: (1, "positions", "hidden_size"),
    "Transformer/encoder_norm/scale": ("hidden_size",),
    "Transformer/encoder_norm/bias": ("hidden_size",),
}
_ATTENTION = "MultiHeadDotProductAttention_1"
_PROJECTION = {
    "kernel": ("hidden_size", "num_heads", "head_size"),
    "bias": ("num_heads", "head_size"),
}
BLOCK_ARRAYS = {
    "LayerNorm_0/scale": ("hidden_size",),
    "LayerNorm_0/bias": ("hidden_size",),
    **{
        f"{_ATTENTION}/{projection}/{name}": shape
        for projection in ("query", "key", "value")
        for name, shape in _PROJECTION.items()
    },
    f"{_ATTENTION}/out/kernel": ("num_heads", "head_size", "hidden_size"),
    f"{_ATTENTION}/out/bias": ("hidden_size",),
    "LayerNorm_2/scale": ("hidden_size",),
    "LayerNorm_2/bias": ("hidden_size",),
    "MlpBlock_3/Dense_0/kernel": ("hidden_size", "mlp_dim"),
    "MlpBlock_3/Dense_0/bias": ("mlp_dim",),
    "MlpBlock_3/Dense_1/kernel": ("mlp_dim", "hidden_size"),
    "MlpBlock_3/Dense_1/bias": ("hidden_size",),
}
ROOT_ARRAYS = {
    "conv_root/kernel": (7, 7, "channels", "resnet_width"),
    "gn_root/scale": ("resnet_width",),
    "gn_root/bias": ("resnet_width",),
}
# Arrays that only some networks have, by feature: once in a network, and in each block.
OPTIONAL_ARRAYS = {
    "class_token": {CLASS_TOKEN: (1, 1, "hidden_size")},
    "pre_logits": PRE_LOGITS_ARRAYS,
    "head": HEAD_ARRAYS,
}
OPTIONAL_BLOCK_ARRAYS: dict[str, dict[str, tuple]] = {}
# Tokens that a feature puts before those of the patches.
PREFIX_TOKENS = {"class_token": 1}

_BLOCK_NAME = re.compile(rf"{BLOCK}_([0-9]+)/(.+)")
_UNIT_NAME = re.compile(r"block([0-9]+)/unit([0-9]+)/")
_ROOT_NAME = re.compile(r"(conv_root|gn_root|block[0-9]+/unit[0-9]+)/")
_GROUP_NORM = re.compile(r"(block[0-9]+/unit[0-9]+/)?gn(_root|_proj|[123])/")


def is_group_norm(name: str) -> bool:
    """Returns whether files hold an array as (1, 1, 1, C) although it is a vector."""
    return _GROUP_NORM.match(name) is not None


def count_blocks(names) -> int:
    """Returns how many encoder blocks a set of released names has."""
    found = {int(m[1]) for m in map(_BLOCK_NAME.match, names) if m}
    _refuse_gaps(found, 0, BLOCK)
    return len(found)


def count_units(names) -> tuple[int, ...] | None:
    """Returns how many residual units each stage of a hybrid's ResNet has.

    It is empty where the ResNet is a lone convolution, and None without one.
    """
    names = list(names)
    stages: dict[int, set[int]] = {}
    for match in filter(None, map(_UNIT_NAME.match, names)):
        stages.setdefault(int(match[1]), set()).add(int(match[2]))
    _refuse_gaps(stages, 1, "block")
    for stage, units in stages.items():
        _refuse_gaps(units, 1, f"block{stage}/unit")
    if not any(map(_ROOT_NAME.match, names)):
        return None
    return tuple(len(stages[stage]) for stage in sorted(stages))


def features(names) -> set[str]:
    """Returns the features of `OPTIONAL_ARRAYS` that some of the names belong to."""
    names = set(names)
    in_blocks = {match[2] for match in map(_BLOCK_NAME.match, names) if match}
    once = {name for name, rows in OPTIONAL_ARRAYS.items() if rows.keys() & names}
    blocks = OPTIONAL_BLOCK_ARRAYS.items()
    return once | {name for name, rows in blocks if rows.keys() & in_blocks}


def num_prefix_tokens(names) -> int:
    """Returns how many tokens come before those of the patches."""
    return sum(PREFIX_TOKENS.get(feature, 0) for feature in features(names))


def layout(num_layers: int, resnet_stages=None, optional=()) -> dict[str, tuple]:
    """Returns {released name: shape} of a network, sizes as in the tables above."""
    arrays = dict(EMBEDDING_ARRAYS)
    if resnet_stages is not None:
        # The first stage quadruples the stem's channels, each later one doubles them.
        factor = 2 * 2 ** len(resnet_stages) if resnet_stages else 1
        height, width, _, size = EMBEDDING_ARRAYS["embedding/kernel"]
        arrays["embedding/kernel"] = (height, width, (factor, "resnet_width"), size)
        arrays |= ROOT_ARRAYS
        for stage, units in enumerate(resnet_stages, start=1):
            for unit in range(1, units + 1):
                for name, shape in _unit_arrays(stage, unit).items():
                    arrays[f"block{stage}/unit{unit}/{name}"] = shape
    arrays |= ENCODER_ARRAYS
    in_block = dict(BLOCK_ARRAYS)
    for feature, rows in OPTIONAL_BLOCK_ARRAYS.items():
        in_block |= rows if feature in optional else {}
    for block in range(num_layers):
        arrays |= {f"{BLOCK}_{block}/{name}": in_block[name] for name in in_block}
    for feature, rows in OPTIONAL_ARRAYS.items():
        arrays |= rows if feature in optional else {}
    if "head" in optional:
        width = "representation_size" if "pre_logits" in optional else "hidden_size"
        arrays["head/kernel"] = (width, "classes")
    return arrays


def measure(shapes) -> tuple[dict[str, int], list[str]]:
    """Returns the named sizes of a checkpoint's arrays, and a list of what is wrong."""
    try:
        blocks = max(count_blocks(shapes), 1)
        table = layout(blocks, count_units(shapes), features(shapes))
    except ValueError as error:
        return {}, [str(error)]
    problems = [f"missing {name}" for name in table if name not in shapes]
    problems += [f"unknown {name}" for name in shapes if name not in table]
    shapes = {name: shapes[name] for name in table if name in shapes}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if len(shape) == len(table[name]):
            for size, symbol in zip(shape, table[name], strict=True):
                if isinstance(symbol, str):
                    sizes.setdefault(symbol, size)
    for name, shape in shapes.items():
        expected = tuple(value(symbol, sizes) for symbol in table[name])
        if shape != expected:
            symbols = ", ".join(map(_spell, table[name]))
            problems.append(f"{name} has shape {shape}, not {expected} ({symbols})")
    problems += [f"{name} is {size}" for name, size in sizes.items() if size < 1]
    heads = sizes.get("num_heads", 1) * sizes.get("head_size", 1)
    if {"num_heads", "head_size"} <= sizes.keys() and heads != sizes.get("hidden_size"):
        problems.append(
            f"{sizes['num_heads']} heads of size {sizes['head_size']} do not make "
            f"the hidden size {sizes.get('hidden_size')}"
        )
    return sizes, problems


@functools.cache
def count(config, positions, classes, representation_size, class_token) -> int:
    """Returns how many numbers the network of a `ViTConfig` has."""
    patch = config.patch_size
    patch_height, patch_width = patch if isinstance(patch, tuple) else (patch, patch)
    sizes = dict(
        config.sizes,
        head_size=config.hidden_size // config.num_heads,
        patch_height=patch_height,
        patch_width=patch_width,
        channels=3,
        positions=positions,
        classes=classes,
        representation_size=representation_size,
    )
    # Features of the arrays that have a field of their own are in the config.
    features = {**vars(config), "head": True, "class_token": class_token}
    features["pre_logits"] = representation_size
    optional = {name for name in features if features[name]}
    arrays = layout(config.num_layers, config.resnet_stages, optional).values()
    return sum(math.prod(value(symbol, sizes) for symbol in row) for row in arrays)


def value(symbol, sizes: dict) -> int | None:
    """Returns the number that a size of the table stands for, None if it is unknown."""
    if isinstance(symbol, int):
        return symbol
    factor, name = symbol if isinstance(symbol, tuple) else (1, symbol)
    return factor * sizes[name] if name in sizes else None


def _unit_arrays(stage, unit):
    """Returns names and shapes of one bottleneck unit (both counted from 1)."""
    width = (2 ** (stage - 1), "resnet_width")
    outputs = (4 * width[0], "resnet_width")
    inputs = outputs if unit > 1 else (2 * width[0], "resnet_width")
    if stage == unit == 1:
        inputs = width
    convolutions = {
        "1": (1, 1, inputs, width),
        "2": (3, 3, width, width),
        "3": (1, 1, width, outputs),
    }
    if unit == 1:
        convolutions["_proj"] = (1, 1, inputs, outputs)
    arrays = {}
    for suffix, shape in convolutions.items():
        arrays[f"conv{suffix}/kernel"] = shape
        arrays[f"gn{suffix}/scale"] = arrays[f"gn{suffix}/bias"] = shape[-1:]
    return arrays


def _refuse_gaps(found, first, label):
    if len(found) > 1000:
        raise ValueError(f"there are {len(found)} {label}s")
    missing = sorted(set(range(first, first + len(found))) - set(found))
    if missing:
        numbers = ", ".join(map(str, sorted(found)))
        raise ValueError(
            f"{label}s are numbered {numbers}: {label.split('/')[-1]} {missing[0]} is "
            "missing"
        )


def _spell(symbol):
    return f"{symbol[0]} x {symbol[1]}" if isinstance(symbol, tuple) else str(symbol)
