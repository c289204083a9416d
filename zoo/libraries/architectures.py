"""What timm's arguments and the names of its architectures say of a network.

`timm_arguments.csv` has one row per argument: the field of `ViTConfig` that it alone
says, how its cells are read, its default and what timm's classes call it, which is
empty where they have none or others count, too. Arguments that no class has are
implied by names alone: `epsilon` of the layer norms, `distilled` for a second token
with a head, `swiglu`, what images are expected (`inputs`), a rule of resizing positions
that is not timm's usual one, the kind of `rotary` positions, the heads of the pooling,
and `named_as`, by which of timm's classes the arrays are named: `"eva"` with separate
biases of queries and values, `"eva_unfused"` with separate kernels too, `"eva_fused"`
with neither, `"beit"` as `"eva"` with other arguments, `"naflex"` with flat patches.

The rows of `architectures.csv` have the arguments that a name implies, of which those
in a file's settings are changes.
"""

import re
from typing import Any

from zoo.libraries.fields import rows

# Mean and deviation of images in [0, 1].
INPUTS = {
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "satellite": ((0.430, 0.411, 0.296), (0.213, 0.156, 0.143)),
}
# How the cells of a column are read, by the type of the argument.
_READ = {
    "text": str,
    "flag": lambda text: bool(int(text)),
    "number": int,
    "float": float,
    "square": lambda text: (int(text),) * 2,
    "biases": lambda text: "query and value" if text == "qv" else bool(int(text)),
}


def _cell(argument, text):
    # An empty cell is what timm's constructor has by default.
    return _READ[argument["type"]](text) if text else None


ARGUMENTS = {row.pop("argument"): row for row in rows("timm_arguments.csv")}
# The defaults of timm's `VisionTransformer`, None where it has none.
DEFAULTS = {name: _cell(row, row["default"]) for name, row in ARGUMENTS.items()}
ROWS = tuple(
    {
        name: _cell(ARGUMENTS[name], text) if name in ARGUMENTS else text
        for name, text in row.items()
        if text
    }
    for row in rows("architectures.csv")
)


def implied(architecture: str) -> dict[str, Any] | None:
    """Returns the arguments that a name implies, None of a name that is not known.

    Example:
        >>> implied("vit_base_patch14_reg4_dinov2")["reg_tokens"]
        4
    """
    for row in ROWS:
        if re.fullmatch(row["architecture"], architecture):
            return {name: row[name] for name in row if name != "architecture"}
    return None
