"""What the names of timm's architectures imply, which no key of a file tells.

The rows of `architectures.csv` have arguments of timm's constructor by their names
there, of which those in a file's settings are changes. Besides: `epsilon` of the layer
norms, `distilled` for a second token with a head, `swiglu`, what images are expected, a
rule of resizing positions that is not timm's usual one, the kind of `rotary` positions,
the heads of the pooling, and by which of its classes' names the arrays go: `"eva"` with
separate biases of queries and values, `"eva unfused"` with separate kernels too,
`"eva fused"` with neither, `"beit"` as `"eva"` with other arguments,
`"naflex"` with flat patches.
"""

import csv
import pathlib
import re

# Mean and deviation of images in [0, 1].
INPUTS = {
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
_READ = {
    "num_heads": int,
    "epsilon": float,
    "reg_tokens": int,
    "pooling_heads": int,
    "ref_feat_shape": lambda text: [int(text)] * 2,
    "qkv_bias": lambda text: "query and value" if text == "qv" else bool(int(text)),
    **dict.fromkeys(
        ("class_token", "no_embed_class", "init_values", "pre_norm", "fc_norm",
         "distilled", "swiglu", "final_norm", "use_abs_pos_emb", "use_rel_pos_bias",
         "use_post_norm", "scale_attn_inner", "mlp_norm_inside"),
        lambda text: bool(int(text)),
    ),
}  # fmt: skip
_FILE = pathlib.Path(__file__).with_name("architectures.csv")


def _row(cells):
    # An empty cell is what timm's constructor has by default.
    return {key: _READ.get(key, str)(text) for key, text in cells.items() if text}


with _FILE.open(encoding="utf-8", newline="") as _lines:
    ROWS = tuple(map(_row, csv.DictReader(_lines)))


def implied(architecture: str) -> dict[str, object] | None:
    """Returns the arguments that a name implies, None of a name that is not known.

    Example:
        >>> implied("vit_base_patch14_reg4_dinov2")["reg_tokens"]
        4
    """
    for row in ROWS:
        if re.fullmatch(row["architecture"], architecture):
            return {name: row[name] for name in row if name != "architecture"}
    return None
