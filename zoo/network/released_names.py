"""The names and shapes of the arrays in a released checkpoint.

Every name of a released array is written here and nowhere else. A shape is a tuple of
sizes; a size is an int, the name of a quantity ("hidden_size") that must be the same
wherever it appears, or an (int, name) product.
The names are those of the files in ``gs://vit_models`` (written by Flax before its
Linen API); `zoo.libraries.released` translates the others.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from zoo.network.position_embedding import relative_positions

if TYPE_CHECKING:
    from zoo.network import ViTConfig

Shapes = Mapping[str, tuple[int, ...]]

CLASS_TOKEN = "cls"
POSITION_EMBEDDING = "Transformer/posembed_input/pos_embedding"
# Ours: no released file has it, and only files with a non-square grid need it.
GRID_SIZE = "Transformer/posembed_input/grid_size"
BLOCK = "Transformer/encoderblock"


def _product(layer, *shape, outputs=1):
    """Returns the arrays of a layer whose kernel has its outputs as the last axes."""
    return {f"{layer}/kernel": shape, f"{layer}/bias": shape[-outputs:]}


def _norm(layer, size="hidden_size"):
    return {f"{layer}/scale": (size,), f"{layer}/bias": (size,)}


HEAD_ARRAYS = _product("head", "features", "classes")
PRE_LOGITS_ARRAYS = _product("pre_logits", "hidden_size", "representation_size")
# The second head of a distilled model reads the distillation token.
SECOND_HEAD_ARRAYS = _product("distillation_head", "hidden_size", "classes")
HEADS = HEAD_ARRAYS.keys() | PRE_LOGITS_ARRAYS.keys() | SECOND_HEAD_ARRAYS.keys()
EMBEDDING_ARRAYS = _product(
    "embedding", "patch_height", "patch_width", "channels", "hidden_size"
)
ENCODER_NORM = _norm("Transformer/encoder_norm")
_ATTENTION = "MultiHeadDotProductAttention_1"
_DENSE_0 = "MlpBlock_3/Dense_0"
BLOCK_ARRAYS = {
    **_norm("LayerNorm_0"),
    **{
        f"{_ATTENTION}/{projection}/kernel": ("hidden_size", "num_heads", "head_size")
        for projection in ("query", "key", "value")
    },
    **_product(f"{_ATTENTION}/out", "num_heads", "head_size", "hidden_size"),
    **_norm("LayerNorm_2"),
    **_product(_DENSE_0, "hidden_size", "mlp_dim"),
    **_product("MlpBlock_3/Dense_1", "mlp_dim", "hidden_size"),
}
ROOT_ARRAYS = {
    "conv_root/kernel": (7, 7, "channels", "resnet_width"),
    **_norm("gn_root", "resnet_width"),
}
# Arrays that only some networks have, by feature: once in a network, and in each block.
REGISTERS = "registers"
QUERIES = "queries"
RELATIVE_BIAS = "relative_position_bias"
_POOL = "MAPHead_0"
_POOL_ATTENTION = f"{_POOL}/MultiHeadDotProductAttention_0"
_POOL_HEADS = ("pooling_heads", "pooling_head_size")
OPTIONAL_ARRAYS: dict[str, dict[str, tuple]] = {
    "positions": {POSITION_EMBEDDING: (1, "positions", "hidden_size")},
    "class_token": {CLASS_TOKEN: (1, 1, "hidden_size")},
    "distillation_token": {"distillation_token": (1, 1, "hidden_size")},
    "registers": {REGISTERS: (1, "num_registers", "hidden_size")},
    "norm_before_blocks": _norm("norm_before_blocks"),
    "norm_after_pooling": _norm("norm_after_pooling"),
    QUERIES: {
        QUERIES: (1, "num_queries", "hidden_size"),
        **_product("MaskHead_0/Dense_0", "hidden_size", "hidden_size"),
        **_product("MaskHead_0/Dense_1", "hidden_size", "hidden_size"),
        **_product("MaskHead_0/Dense_2", "hidden_size", "hidden_size"),
    },
    "attention_pooling": {
        f"{_POOL}/probe": (1, 1, "hidden_size"),
        **_product(f"{_POOL_ATTENTION}/query", "hidden_size", *_POOL_HEADS, outputs=2),
        **_product(f"{_POOL_ATTENTION}/key", "hidden_size", *_POOL_HEADS, outputs=2),
        **_product(f"{_POOL_ATTENTION}/value", "hidden_size", *_POOL_HEADS, outputs=2),
        **_product(f"{_POOL_ATTENTION}/out", *_POOL_HEADS, "hidden_size"),
        **_norm(f"{_POOL}/LayerNorm_0"),
        **_product(f"{_POOL}/MlpBlock_0/Dense_0", "hidden_size", "pooling_mlp_dim"),
        **_product(f"{_POOL}/MlpBlock_0/Dense_1", "pooling_mlp_dim", "hidden_size"),
    },
    "pre_logits": PRE_LOGITS_ARRAYS,
    "head": HEAD_ARRAYS,
    "distillation_head": SECOND_HEAD_ARRAYS,
}
# Each doubles the sides of the map of patches that masks are made of.
UPSCALE = "MaskHead_0/Upscale"
UPSCALE_ARRAYS = {
    "ConvTranspose_0/kernel": (2, 2, "hidden_size", "hidden_size"),
    "ConvTranspose_0/bias": ("hidden_size",),
    "DepthwiseConv_0/kernel": (3, 3, "hidden_size", 1),
    **_norm("LayerNorm_0"),
}
_QUERY_VALUE, _KEY = "query_and_value_bias", "key_bias"
OPTIONAL_BLOCK_ARRAYS: dict[str, dict[str, tuple]] = {
    "attention_norm_inside": _norm(f"{_ATTENTION}/LayerNorm_0"),
    "mlp_norm_inside": _norm("MlpBlock_3/LayerNorm_0", "mlp_dim"),
    _QUERY_VALUE: {
        f"{_ATTENTION}/query/bias": ("num_heads", "head_size"),
        f"{_ATTENTION}/value/bias": ("num_heads", "head_size"),
    },
    _KEY: {f"{_ATTENTION}/key/bias": ("num_heads", "head_size")},
    # Its heads are those of the attention, which most files do not show.
    "relative_position_bias": {
        f"{_ATTENTION}/{RELATIVE_BIAS}": ("relative_positions", "relative_heads")
    },
    "layer_scale": {
        "LayerScale_0/scale": ("hidden_size",),
        "LayerScale_1/scale": ("hidden_size",),
    },
}
# Only shapes show these: an MLP with two values per hidden number, and a head that
# reads two vectors, the class token and the mean of the patches.
SWIGLU, TWO_VECTORS = "swiglu", "two_vectors"
# A missing norm after the blocks must be stated.
NO_FINAL_NORM = "no_final_norm"
_BIASES = {True: {_QUERY_VALUE, _KEY}, False: set(), "query and value": {_QUERY_VALUE}}

_BLOCK_NAME = re.compile(rf"{BLOCK}_([0-9]+)/(.+)")
_UPSCALE_NAME = re.compile(rf"{UPSCALE}_([0-9]+)/")
_UNIT_NAME = re.compile(r"block([0-9]+)/unit([0-9]+)/")
_ROOT_NAME = re.compile(r"(conv_root|gn_root|block[0-9]+/unit[0-9]+)/")
_GROUP_NORM = re.compile(r"(block[0-9]+/unit[0-9]+/)?gn(_root|_proj|[123])/")


def is_group_norm(name: str) -> bool:
    """Returns whether files hold an array as (1, 1, 1, C) although it is a vector."""
    return _GROUP_NORM.match(name) is not None


def is_of_head(name: str) -> bool:
    """Returns whether an array is of a head, as queries and what follows them are."""
    return name in HEADS or name == QUERIES or name.startswith("MaskHead_0/")


def count_blocks(names: Iterable[str]) -> int:
    """Returns how many encoder blocks a set of released names has."""
    blocks = {int(m[1]) for m in map(_BLOCK_NAME.match, names) if m}
    _refuse_gaps(blocks, 0, BLOCK)
    return len(blocks)


def count_upscale_blocks(names: Iterable[str]) -> int:
    """Returns how many times a set of released names doubles the grid of masks."""
    blocks = {int(m[1]) for m in map(_UPSCALE_NAME.match, names) if m}
    _refuse_gaps(blocks, 0, UPSCALE)
    return len(blocks)


def count_units(names: Iterable[str]) -> tuple[int, ...] | None:
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


def features(shapes: Shapes) -> set[str]:
    """Returns the features of `OPTIONAL_ARRAYS` that arrays of these shapes show."""
    in_blocks = {match[2] for match in map(_BLOCK_NAME.match, shapes) if match}
    tables = ((OPTIONAL_ARRAYS, shapes.keys()), (OPTIONAL_BLOCK_ARRAYS, in_blocks))
    shown = {
        feature
        for table, names in tables
        for feature, rows in table.items()
        if rows.keys() & names
    }

    def rows_of(name):
        return (*shapes.get(name, ()), 0)[0]

    expanded = shapes.get(f"{BLOCK}_0/{_DENSE_0}/bias", (0,))
    if expanded == (2 * rows_of(f"{BLOCK}_0/MlpBlock_3/Dense_1/kernel"),) != (0,):
        shown.add(SWIGLU)
    if "pre_logits" not in shown and shapes.get("embedding/bias", ()) != ():
        hidden_size = rows_of("embedding/bias")
        if rows_of("head/kernel") == 2 * hidden_size > 0:
            shown.add(TWO_VECTORS)
    return shown


def families(shapes: Shapes) -> dict[str, Any]:
    """Returns what `zoo.network.FAMILIES` has and arrays of these shapes show."""
    shown = features(shapes)
    names = (*OPTIONAL_ARRAYS, *OPTIONAL_BLOCK_ARRAYS)
    values = {name: name in shown for name in names if "norm" in name}
    biases = {_QUERY_VALUE, _KEY} & shown
    return values | {
        "layer_scale": "layer_scale" in shown,
        "num_registers": shapes[REGISTERS][1] if REGISTERS in shown else 0,
        "num_queries": shapes[QUERIES][1] if QUERIES in shapes else 0,
        "upscale_blocks": count_upscale_blocks(shapes),
        "distillation_token": "distillation_token" in shown,
        "relative_position_bias": "relative_position_bias" in shown,
        "qkv_bias": next(
            (key for key, value in _BIASES.items() if value == biases), True
        ),
    }


def required(config: "ViTConfig") -> set[str]:
    """Returns the features that a `ViTConfig` means."""
    needed = set() if config.tokens_with_positions == "none" else {"positions"}
    if config.final_norm is False:
        needed.add(NO_FINAL_NORM)
    return needed | _BIASES[True if config.qkv_bias is None else config.qkv_bias]


def num_prefix_tokens(shapes: Shapes) -> int:
    """Returns how many tokens come before those of the patches."""
    tokens = {"class_token", "distillation_token"} & features(shapes)
    registers = (*shapes.get(REGISTERS, ()), 0, 0)[1]
    return len(tokens) + registers


def layout(
    num_layers: int,
    resnet_stages: tuple[int, ...] | None = None,
    optional: Iterable[str] = (),
    upscale_blocks: int = 0,
) -> dict[str, tuple]:
    """Returns {released name: shape} of a network, sizes as in the tables above."""
    arrays: dict[str, tuple] = dict(EMBEDDING_ARRAYS)
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
    if not {"norm_after_pooling", NO_FINAL_NORM} & set(optional):
        arrays |= ENCODER_NORM
    in_block = _block_arrays(optional)
    for block in range(num_layers):
        arrays |= {f"{BLOCK}_{block}/{name}": in_block[name] for name in in_block}
    for feature, rows in OPTIONAL_ARRAYS.items():
        arrays |= rows if feature in optional else {}
    for block in range(upscale_blocks):
        for name, shape in UPSCALE_ARRAYS.items():
            arrays[f"{UPSCALE}_{block}/{name}"] = shape
    if "head" in optional:
        width = "representation_size" if "pre_logits" in optional else "hidden_size"
        width = (2, width) if TWO_VECTORS in optional else width
        arrays["head/kernel"] = (width, "classes")
    return arrays


def _block_arrays(optional):
    """Returns {name in a block: shape}."""
    arrays = dict(BLOCK_ARRAYS)
    for feature, rows in OPTIONAL_BLOCK_ARRAYS.items():
        arrays |= rows if feature in optional else {}
    if SWIGLU in optional:
        expanded = {name: shape for name, shape in arrays.items() if _DENSE_0 in name}
        for name, shape in expanded.items():
            arrays[name] = (*shape[:-1], (2, "mlp_dim"))
    return arrays


def measure(
    shapes: Shapes, required: Iterable[str] = ()
) -> tuple[dict[str, int], list[str]]:
    """Returns the named sizes of a checkpoint's arrays, and a list of what is wrong.

    Arrays of `required` features must be there, others of `OPTIONAL_ARRAYS` may.
    """
    try:
        blocks = max(count_blocks(shapes), 1)
        optional = features(shapes).union(required)
        upscale_blocks = count_upscale_blocks(shapes)
        table = layout(blocks, count_units(shapes), optional, upscale_blocks)
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
def count(
    config: "ViTConfig",
    grid_size: tuple[int, int],
    classes: int,
    representation_size: int | None,
    class_token: bool,
) -> int:
    """Returns how many numbers the network of a whole `ViTConfig` has."""
    patches = math.prod(grid_size)
    others = {"patches": 0, "class token and patches": class_token, "none": -patches}
    prefix = class_token + config.distillation_token + config.num_registers
    positions = patches + others.get(config.tokens_with_positions, prefix)
    patch = config.patch_size
    patch_height, patch_width = patch if isinstance(patch, tuple) else (patch, patch)
    sizes = dict(
        config.sizes,
        head_size=config.hidden_size // config.num_heads,
        patch_height=patch_height,
        patch_width=patch_width,
        channels=3,
        positions=positions,
        relative_positions=relative_positions(grid_size, prefix),
        relative_heads=config.num_heads,
        num_registers=config.num_registers,
        num_queries=config.num_queries,
        classes=classes,
        representation_size=representation_size,
    )
    # Features of the arrays that have a field of their own are in the config.
    features = {**vars(config), "head": True, "class_token": class_token}
    features["pre_logits"] = representation_size
    features[REGISTERS] = config.num_registers
    features[QUERIES] = config.num_queries
    features[SWIGLU] = config.activation == "swiglu"
    optional = {name for name in features if features[name]}
    optional |= required(config)
    arrays = layout(
        config.num_layers, config.resnet_stages, optional, config.upscale_blocks
    )
    return sum(
        math.prod(value(symbol, sizes) for symbol in row) for row in arrays.values()
    )


def value(symbol: int | str | tuple[int, str], sizes: dict) -> int | None:
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


def _refuse_gaps(numbers_there, first, label):
    if len(numbers_there) > 1000:
        raise ValueError(f"there are {len(numbers_there)} {label}s")
    missing = sorted(set(range(first, first + len(numbers_there))) - set(numbers_there))
    if missing:
        numbers = ", ".join(map(str, sorted(numbers_there)))
        raise ValueError(
            f"{label}s are numbered {numbers}: {label.split('/')[-1]} {missing[0]} is "
            "missing"
        )


def _spell(symbol):
    return f"{symbol[0]} x {symbol[1]}" if isinstance(symbol, tuple) else str(symbol)
