"""Which weights of a model are trained, and how fast."""

import math
import re

from train.common.errors import RunError

_BLOCK = re.compile(r"encoder_block_(\d+)/")
_AFTER_BLOCKS = ("encoder_norm/", "pre_logits/", "head/")


def choose_trainable(model, *, frozen=False, lora_rank=0):
    """Freezes what is not to be trained; call it in the scope of the strategy.

    Args:
        model: `keras.Model` with a layer `head`.
        frozen: bool, whether only the head is trained: a linear probe.
        lora_rank: int, that of the products which are added to the queries' and
            values' kernels and trained in their place, beside the head; 0 for none.
            They become part of the kernels where the model is saved.

    Raises:
        RunError: the model has no attention.

    Source:
        LoRA: Low-Rank Adaptation of Large Language Models, arXiv 2106.09685, sections
        4.2 and 7.1; with the scale 1.

    Example:

    >>> import keras_vit
    >>> model = keras_vit.ViT_Ti16(None, classes=10)
    >>> choose_trainable(model, frozen=True)
    >>> [variable.path for variable in model.trainable_variables]
    ['head/kernel', 'head/bias']
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
            f"{model.name} has no attention to which --lora_rank={lora_rank} could "
            "add: leave it out, or choose a Vision Transformer."
        )
    for block in blocks:
        for projection in (block.attention.query, block.attention.value):
            projection.enable_lora(lora_rank)
            # The layers stay frozen, also where they are loaded without the products.
            projection.lora_kernel_a.trainable = True
            projection.lora_kernel_b.trainable = True


def count_parameters(variables, lora=False):
    """Counts the numbers in variables.

    Args:
        variables: of a model.
        lora: bool, whether to count LoRA's products, which saved models do not have.

    Returns:
        int.
    """
    return sum(
        math.prod(variable.shape)
        for variable in variables
        if lora or not variable.name.startswith("lora_kernel")
    )


def layer_rates(model, layer_decay):
    """Returns the factors of the learning rate that fall from block to block.

    What comes after the blocks has factor 1, the last block `layer_decay`, the one
    before it the square of that, and so on; what comes before the first block one
    power more than that.

    Args:
        model: `keras.Model` with transformer blocks.
        layer_decay: float in (0, 1].

    Returns:
        Dict of the paths of the trainable variables to floats.

    Raises:
        RunError: the model has no blocks.

    Source:
        ELECTRA, arXiv 2003.10555, appendix; for Vision Transformers BEiT, arXiv
        2106.08254, appendix H.

    Example:

    >>> import keras_vit
    >>> rates = layer_rates(keras_vit.ViT_Ti16(None, classes=10), 0.5)
    >>> rates["head/kernel"], rates["encoder_block_11/mlp/expand/kernel"]
    (1.0, 0.5)
    """
    paths = [variable.path for variable in model.trainable_variables]
    blocks = [
        int(match[1])
        for layer in model.layers
        if (match := _BLOCK.match(f"{layer.name}/"))
    ]
    if not blocks:
        raise RunError(
            f"{model.name} has no blocks, from one to the next of which --layer_decay "
            "could fall: leave it out, or choose a Vision Transformer."
        )
    depth = max(blocks) + 1

    def power(path):
        if match := _BLOCK.match(path):
            return depth - int(match[1])
        return 0 if path.startswith(_AFTER_BLOCKS) else depth + 1

    return {path: layer_decay ** power(path) for path in paths}
