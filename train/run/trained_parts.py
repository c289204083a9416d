"""Trains part of the weights, or layers at other rates: probe, LoRA, layer decay."""

import math
import re
from collections.abc import Iterable

import keras

from train.common.errors import RunError

_BLOCK = re.compile(r"encoder_block_(\d+)/")
_AFTER_BLOCKS = (
    "encoder_norm/", "norm_after_pooling/", "pooling/", "pre_logits/", "head/",
)  # fmt: skip


def choose_trainable(
    model: keras.Model, *, frozen: bool = False, lora_rank: int = 0
) -> None:
    """Freezes what is not to be trained; call it in the scope of the strategy.

    `frozen` trains only the head, a linear probe. With `lora_rank` products of that
    rank are added to the queries' and values' kernels and trained in their place,
    beside the head; they become part of the kernels where the model is saved.

    Source:
        LoRA: Low-Rank Adaptation of Large Language Models, arXiv 2106.09685, sections
        4.2 and 7.1; with the scale 1.
    """
    if not frozen and not lora_rank:
        return
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    if not lora_rank:
        return
    blocks = [layer for layer in model.layers if hasattr(layer, "attention")]
    if not blocks:
        raise RunError(
            f"--lora_rank={lora_rank} needs attention layers; {model.name} has none: "
            "leave it out, or choose a Vision Transformer."
        )
    for block in blocks:
        for projection in (block.attention.query, block.attention.value):
            projection.enable_lora(lora_rank)
            # The layers stay frozen, also where they are loaded without the products.
            projection.lora_kernel_a.trainable = True
            projection.lora_kernel_b.trainable = True


def count_parameters(variables: Iterable[keras.Variable], lora: bool = False) -> int:
    """Counts parameters; LoRA products, which are not saved, only if `lora`."""
    return sum(
        math.prod(variable.shape)
        for variable in variables
        if lora or not variable.name.startswith("lora_kernel")
    )


def block_numbers(model: keras.Model) -> list[int]:
    """Returns the numbers of a model's transformer blocks, none of other networks."""
    return [
        int(match[1])
        for layer in model.layers
        if (match := _BLOCK.match(f"{layer.name}/"))
    ]


def layer_rates(model: keras.Model, layer_decay: float) -> dict[str, float]:
    """Returns factors of the learning rate, by paths of the trainable variables.

    Layers after the blocks have factor 1, the last block `layer_decay`, the one before
    it its square, and so on; layers before the first block have one power more than
    that.

    Source:
        ELECTRA, arXiv 2003.10555, appendix; for Vision Transformers BEiT, arXiv
        2106.08254, appendix H.
    """
    paths = [variable.path for variable in model.trainable_variables]
    blocks = block_numbers(model)
    if not blocks:
        raise RunError(
            f"--layer_decay needs transformer blocks; {model.name} has none: leave it "
            "out, or choose a Vision Transformer."
        )
    depth = max(blocks) + 1

    def power(path: str) -> int:
        if match := _BLOCK.match(path):
            return depth - int(match[1])
        return 0 if path.startswith(_AFTER_BLOCKS) else depth + 1

    return {path: layer_decay ** power(path) for path in paths}
