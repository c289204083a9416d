"""How much arithmetic a model is, counted from its configuration."""

import math

from keras_vit.layers.sizes import pair

CHANNELS = 3


def multiply_adds(config, image_size, classes):
    """Returns the multiply-adds of one image's logits: products and convolutions.

    Args:
        config: `keras_vit.ViTConfig`, plain or hybrid.
        image_size: int or (height, width).
        classes: int.

    Returns:
        Int. A multiply-add is two floating-point operations.
    """
    patches = math.prod(config.grid_size(image_size))
    tokens = patches + 1
    hidden = config.hidden_size
    stem, features = _resnet(config, image_size) if config.is_hybrid else (0, CHANNELS)
    embedding = patches * _patch_area(config) * features * hidden
    # Query, key, value and output; scores and their weighted sum; the two of the MLP.
    block = tokens * (4 * hidden**2 + 2 * hidden * config.mlp_dim)
    block += 2 * tokens**2 * hidden
    return stem + embedding + config.num_layers * block + hidden * classes


def parameters(config, image_size, classes):
    """Returns the number of parameters.

    Args:
        config: `keras_vit.ViTConfig`, not of a hybrid.
        image_size: int or (height, width).
        classes: int.

    Returns:
        Int.
    """
    hidden, mlp_dim = config.hidden_size, config.mlp_dim
    tokens = math.prod(config.grid_size(image_size)) + 1
    embedding = (_patch_area(config) * CHANNELS + 1) * hidden + hidden + tokens * hidden
    norms = 2 * 2 * hidden
    attention = 4 * (hidden + 1) * hidden
    mlp = (hidden + 1) * mlp_dim + (mlp_dim + 1) * hidden
    blocks = config.num_layers * (norms + attention + mlp)
    return embedding + blocks + 2 * hidden + (hidden + 1) * classes


def _patch_area(config):
    return math.prod(pair(config.patch_size, "patch_size"))


def _resnet(config, image_size):
    """Multiply-adds of a hybrid's ResNet, and the channels that leave it."""
    height, width = (math.ceil(side / 2) for side in pair(image_size, "image_size"))
    channels = config.resnet_width
    total = height * width * 7 * 7 * CHANNELS * channels
    height, width = math.ceil(height / 2), math.ceil(width / 2)
    for stage, units in enumerate(config.resnet_stages):
        filters = config.resnet_width * 2**stage
        for unit in range(units):
            total += height * width * channels * filters
            halves = stage > 0 and unit == 0
            if halves:
                height, width = math.ceil(height / 2), math.ceil(width / 2)
            positions = height * width
            total += positions * (9 * filters**2 + 4 * filters**2)
            if halves or channels != 4 * filters:
                total += positions * channels * 4 * filters
            channels = 4 * filters
    return total, channels
