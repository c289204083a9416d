"""Other ways to write the same checkpoint, translated to the released names.

Three layers, undone from the outside in: a prefix around the model (a training
state, a two-tower model), other module names (Flax Linen), and other arrangements of
the same numbers (stacked blocks, the position embedding at top level).
"""

from __future__ import annotations

import re

import numpy as np

from zoo import released_names

# A prefix and what may stand beside it: optimizer state, the text tower of a
# two-tower model with its temperature and bias.
_PREFIXES = (
    ("opt/target/", re.compile(r"opt/")),
    ("params/img/", re.compile(r"opt/|params/txt/|params/[tb]$")),
    ("params/", re.compile(r"opt/")),
    ("", None),
)
_LINEN_MODULES = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
# More would be no model, but a part of memory for each.
_MOST_BLOCKS = 1000
_TOP_LEVEL_POSITION_EMBEDDING = "pos_embedding"


def select(keys) -> tuple[dict[str, str], list[str]]:
    """Chooses the arrays of the model among the keys of a file.

    Args:
        keys: iterable of str, every key of the file.

    Returns:
        A dict of key to its name without prefix and with released module names, and a
        list of the keys beside the prefix that nothing explains. Keys that are known
        to be something else (optimizer state, a text tower) are in neither.

    Example:
        >>> from zoo import dialects
        >>> dialects.select(["opt/target/cls", "opt/state/step", "epoch"])
        ({'opt/target/cls': 'cls'}, ['epoch'])
    """
    keys = list(keys)
    # The last row, the empty prefix, fits every file.
    prefix, beside = next(
        (prefix, beside)
        for prefix, beside in _PREFIXES
        if any(key.startswith(prefix) for key in keys) or not prefix
    )
    inside = [key for key in keys if key.startswith(prefix)]
    chosen = {key: _released_module(key[len(prefix) :]) for key in inside}
    unknown = [key for key in keys if key not in chosen and not beside.match(key)]
    return chosen, unknown


def arrange(name, array) -> dict:
    """Splits and reshapes one array as the released files have it.

    Args:
        name: str, as `select` gives it.
        array: the array under that name, or a `zoo.files.archive.StoredArray`.

    Returns:
        A dict of released name to array: several entries for stacked blocks, else
        one.

    Example:
        >>> import numpy as np
        >>> from zoo import dialects
        >>> stacked = "Transformer/encoderblock/LayerNorm_0/scale"
        >>> len(dialects.arrange(stacked, np.ones((12, 768), "float32")))
        12
    """
    stack = f"{released_names.BLOCK}/"
    if name.startswith(stack) and array.ndim and array.shape[0] <= _MOST_BLOCKS:
        rest = name[len(stack) :]
        return {
            f"{released_names.BLOCK}_{block}/{rest}": part
            for block, part in enumerate(array)
        }
    if name == _TOP_LEVEL_POSITION_EMBEDDING:
        return {released_names.POSITION_EMBEDDING: array}
    if released_names.is_group_norm(name) and array.shape[:-1] == (1, 1, 1):
        return {name: array.reshape(array.shape[-1:])}
    return {name: array}


def restore_class_token_row(arrays, chosen) -> None:
    """Gives a top-level position embedding the class token's row, in place.

    The writers of that dialect added the row to the class token itself and dropped
    it, so a row of zeros makes the same model.

    Args:
        arrays: dict of released name to what `arrange` gives, changed in place.
        chosen: the dict that `select` gives.

    Example:
        >>> import numpy as np
        >>> from zoo import dialects, released_names
        >>> arrays = {
        ...     released_names.CLASS_TOKEN: np.ones((1, 1, 8)),
        ...     released_names.POSITION_EMBEDDING: np.ones((1, 16, 8)),
        ... }
        >>> dialects.restore_class_token_row(arrays, {"params/pos": "pos_embedding"})
        >>> arrays[released_names.POSITION_EMBEDDING].shape
        (1, 17, 8)
    """
    if _TOP_LEVEL_POSITION_EMBEDDING not in chosen.values():
        return
    table = arrays[released_names.POSITION_EMBEDDING]
    if released_names.CLASS_TOKEN in arrays and table.ndim == 3:
        arrays[released_names.POSITION_EMBEDDING] = np.pad(
            np.asarray(table), ((0, 0), (1, 0), (0, 0))
        )


def to_float32(array: np.ndarray) -> np.ndarray:
    """Widens the half precisions that files hold.

    Args:
        array: float32, float16 or bfloat16 (NumPy reads the last as void of two
            bytes) array.

    Returns:
        A float32 array.

    Raises:
        TypeError: another dtype.

    Example:
        >>> import numpy as np
        >>> from zoo import dialects
        >>> dialects.to_float32(np.array([0x3F80], "uint16").view("V2"))
        array([1.], dtype=float32)
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        # bfloat16 is the upper half of a float32.
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(array.shape)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        return array.astype(np.float32, copy=False)
    raise TypeError(f"dtype {array.dtype}, not float32, float16 or bfloat16")


def _released_module(name):
    """Replaces Linen's module names inside the encoder blocks."""
    if not name.startswith(released_names.BLOCK):
        return name
    return "/".join(_LINEN_MODULES.get(part, part) for part in name.split("/"))
