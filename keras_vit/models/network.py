"""The network of a Vision Transformer, in the paper's order."""

import dataclasses

import keras

from keras_vit import layers
from keras_vit.layers import poolings
from keras_vit.layers.residual_unit import group_norm, root_pool, stages
from keras_vit.models.arguments import head_dtype, images_input
from keras_vit.models.base import Description, Model
from keras_vit.models.mask_model import MaskModel
from zoo.network import RELEASED, ViTConfig


def build(
    config: ViTConfig,
    image_size: tuple[int, int],
    *,
    channels: int = 3,
    class_token: bool = True,
    pooling: str | None = "token",
    pooling_options: dict | None = None,
    representation_size: int | None = None,
    head: dict | None = None,
    preparation: str = "squash",
    bits: int | None = None,
    dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    remat: bool = False,
    masked_steps: int | None = None,
    name: str = "vision_transformer",
) -> Model:
    """Returns the network of a `ViTConfig` with random weights.

    Arguments are those of `VisionTransformer`, or of the layers that they are handed
    to; no field of the config is left to files. `pooling_options` are arguments of the
    layer that pools, `head`, of a model with one, those of its `ClassificationHead`.
    A config with queries needs a head, and `pooling="queries"`; `masked_steps` are the
    `steps` of its `MaskAnnealing`, None for no masked attention.

    Source:
        Paper section 3.1; of queries Kerssies et al., arXiv 2503.19108, section 3.2.

    Example:
        >>> config = ViTConfig(64, 2, 2, 128, patch_size=8).completed()
        >>> build(config, (32, 32)).output_shape
        (None, 64)
    """
    grid_size = config.grid_size(image_size, name=name)

    # Equation 1: patches, class token, positions.
    images = images_input(image_size, channels)
    features = _resnet(images, config) if config.is_hybrid else images
    tokens = layers.PatchEncoder(
        config.patch_size, config.hidden_size, preparation, bits, name="embedding"
    )(features)
    positions, block_positions = _positions(config, grid_size)
    for layer in _before_blocks(config, class_token, positions):
        tokens = layer(tokens)
    tokens = keras.layers.Dropout(dropout_rate, name="dropout")(tokens)
    if config.norm_before_blocks:
        tokens = _norm(config, "norm_before_blocks")(tokens)

    # Equations 2 and 3: the blocks, of which the last may have queries.
    for index, positions in enumerate(block_positions):
        for layer in _before_block(config, index, positions, masked_steps):
            tokens = layer(tokens)
        depth = index / max(config.num_layers - 1, 1)
        tokens = _block(
            config,
            grid_size,
            config.num_queries * (index >= config.num_layers - config.query_blocks),
            dropout_rate=dropout_rate,
            stochastic_depth_rate=stochastic_depth_rate * depth,
            remat=remat,
            name=f"encoder_block_{index}",
        )(tokens)

    # Equation 4: the norm and what it is the norm of; then the head.
    if config.final_norm and not config.norm_after_pooling:
        tokens = _norm(config, "encoder_norm")(tokens)
    states = tokens
    prefix = config.num_registers + config.distillation_token + class_token
    if pooling is not None:
        options = {"name": "pooling", **(pooling_options or {})}
        tokens = poolings.layer_of(pooling, config, prefix, **options)(tokens)
    pooled = tokens
    if config.norm_after_pooling:
        tokens = _norm(config, "norm_after_pooling")(tokens)
    if representation_size is not None:
        tokens = keras.layers.Dense(
            representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            name="pre_logits",
        )(tokens)
    if head is not None:
        tokens = layers.ClassificationHead(
            preparation=preparation,
            bits=bits,
            kernel_initializer="zeros",
            dtype=head_dtype(),
            name="head",
            **head,
        )(tokens)
    outputs, kind = tokens, Model
    if config.num_queries:
        kind = MaskModel
        masks = _masks(config, features, states, pooled, config.num_queries + prefix)
        outputs = {"class_logits": tokens, "mask_logits": masks}
    # Loading changes the arrays of any file to take images in [-1, 1].
    network = dataclasses.replace(
        config, **{name: RELEASED[name] for name in ("input_mean", "input_std")}
    )
    description = Description(network, image_size, class_token, pooling)
    return kind(images, outputs, name=name, description=description)


def _before_block(config, index, positions, masked_steps):
    """The layers before a block: one that adds positions, those of queries."""
    if positions is not None:
        yield positions
    if config.num_queries and index == config.num_layers - config.query_blocks:
        yield layers.RegisterTokens(config.num_queries, stddev=1.0, name="queries")
        if masked_steps:
            yield layers.MaskAnnealing(
                config.query_blocks, masked_steps, name="mask_annealing"
            )


def _norm(config, name):
    return layers.LayerNorm(config.layer_norm_epsilon, name=name)


def _masks(config, features, tokens, queries, prefix):
    """The mask of each query: products with the map of patches, made larger."""
    grid = layers.PatchGrid(config.patch_size, name="mask_grid")(features)
    bound = config.hidden_size**-0.5
    for index, activation in enumerate(("gelu", "gelu", None)):
        queries = keras.layers.Dense(
            config.hidden_size,
            activation,
            kernel_initializer=layers.initial_values.uniform(bound),
            bias_initializer=layers.initial_values.uniform(bound),
            name=f"mask_head_{index}",
        )(queries)
    pixels = layers.PatchMap(prefix, name="mask_features")(tokens, grid=grid)
    for index in range(config.upscale_blocks):
        pixels = layers.UpscaleBlock(name=f"upscale_block_{index}")(pixels)
    return layers.MaskLogits(name="masks")(queries, features=pixels)


def _block(config, grid_size, queries, **options):
    """The block of a network: its norms, attention and perceptron."""
    # True only says that there are factors.
    layer_scale = 1e-5 if config.layer_scale is True else config.layer_scale
    kind = (
        layers.PostNormBlock if config.norm_after_branches else layers.TransformerBlock
    )
    return kind(
        num_heads=config.num_heads,
        mlp_dim=config.mlp_dim,
        activation=config.activation,
        layer_norm_epsilon=config.layer_norm_epsilon,
        layer_scale=layer_scale or None,
        qkv_bias=config.qkv_bias,
        positions=_attention_positions(config, grid_size, queries),
        attention_norm_inside=config.attention_norm_inside,
        mlp_norm_inside=config.mlp_norm_inside,
        **options,
    )


def _attention_positions(config, grid_size, queries):
    """How the places of tokens enter the attention of a block, None for not at all."""
    num_registers = queries + config.num_registers + config.distillation_token
    # The paths of variables, by which checkpoints know them, do not count layers.
    name = "positions"
    if config.position_embedding == "relative":
        return layers.RelativePositionEmbedding(name=name)
    if config.relative_position_bias:
        return layers.RelativePositionBias(
            grid_size, num_registers, config.relative_position_resizing, name=name
        )
    if config.rotary != "none":
        return layers.RotaryPositions(
            config.rotary,
            grid_size,
            num_registers,
            config.rotary_grid,
            config.rotary_base,
            name=name,
        )
    return None


def _resnet(images, config):
    """The ResNet of the hybrids (paper section 3.1), whose stages may be empty."""
    options = {"padding": config.resnet_padding, "epsilons": config.resnet_epsilons}
    width, units = config.resnet_width, "resnet_stage_{}_unit_{}"
    root = layers.StdConv2D(width, 7, strides=2, name="conv_root", **options)
    features = root(images)
    features = group_norm("gn_root", config.resnet_epsilons)(features)
    features = keras.layers.ReLU(name="root_relu")(features)
    features = root_pool(features, config.resnet_padding)
    depths, kind = config.resnet_stages, layers.ResidualUnit
    return stages(features, kind, depths, width, units, **options)


def _before_blocks(config, class_token, positions):
    """The layers that add tokens before those of the patches, and positions."""
    if class_token:
        class_token = layers.ClassToken(name="class_token")
    others = []
    behind = 1 if config.tokens_with_positions == "class token and patches" else 0
    for name, count in (
        ("registers", config.num_registers),
        ("distillation_token", int(config.distillation_token)),
    ):
        if count:
            others.append(layers.RegisterTokens(count, behind, name=name))
    order = {
        "all": [*others, class_token, positions],
        "patches": [positions, *others, class_token],
        "none": [*others, class_token],
        "class token and patches": [class_token, positions, *others],
    }
    return filter(None, order[config.tokens_with_positions])


def _positions(config, grid_size):
    """The layers that add positions at the stem and before each block, or None.

    Only what released files hold has the name `keras_vit.weights` knows it by.
    """
    kinds = {"learned": layers.AddPositionEmbs, "2d": layers.AddPositionEmbs2D}
    layer = kinds.get(config.position_embedding)
    nowhere = [None] * config.num_layers
    if layer is None or config.tokens_with_positions == "none":
        return None, nowhere
    if config.position_embedding_at == "stem":
        name = "position_embedding"
        if not config.has_released_positions:
            name = f"{name}_{config.position_embedding}"
        options = {}
        if config.position_embedding == "learned":
            options["resizing"] = config.position_resizing
            if config.tokens_with_positions == "all":
                registers = config.num_registers + config.distillation_token
                options["num_registers"] = registers
        return layer(grid_size, name=name, **options), nowhere
    if config.position_embedding_at == "every_layer_shared":
        shared = layer(grid_size, name="shared_position_embedding")
        return None, [shared] * config.num_layers
    names = [f"position_embedding_{index}" for index in range(config.num_layers)]
    return None, [layer(grid_size, name=name) for name in names]
