"""Transformer blocks, with norms before or after what is added to the tokens."""

from typing import Any

import keras

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.base import Composite, Shape, Tensor, check_tokens
from keras_vit.layers.forward_pass import forward_pass, with_attention_weights
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP
from keras_vit.layers.positions import AttentionPositions
from keras_vit.layers.remat import Dropout, rematerialized
from keras_vit.layers.stochastic_depth import StochasticDepth


@keras.saving.register_keras_serializable(package="keras_vit")
class TransformerBlock(Composite):
    """Self-attention and a perceptron, each after a layer norm and added back.

    Args:
        num_heads: int, divides the size of a token.
        mlp_dim: int, the size of the perceptron's hidden layer.
        dropout_rate: float in [0, 1), after the attention and after both layers of
            the perceptron.
        attention_dropout_rate: float in [0, 1), of the attention weights.
        stochastic_depth_rate: float in [0, 1), of both branches.
        activation: see `MLP`.
        layer_norm_epsilon: float, added to the variance by both norms.
        layer_scale: None, or the float that the factors of each branch start with, see
            `LayerScale`.
        qkv_bias: see `SelfAttention`.
        positions: see `SelfAttention`.
        attention_norm_inside: bool, whether `SelfAttention` normalises before its last
            projection.
        mlp_norm_inside: bool, whether `MLP` normalises its hidden numbers.
        remat: bool, whether training keeps the block's input alone and computes the
            rest once more for the gradient: less memory for a third more time, and the
            same gradients, whatever is dropped.

    Call arguments:
        tokens, return_attention_weights, class_token_only, grid: see `SelfAttention`.
        training: bool, whether dropout and stochastic depth are on.

    Returns:
        See `SelfAttention`.

    Source:
        Paper section 3.1, equations 2 and 3; `encoderblock_0`, ... in released files;
        with LayerScale: Touvron et al., arXiv 2103.17239, equation 4. Norms inside:
        `EvaBlock` of timm.

    Example:
        >>> block = TransformerBlock(num_heads=3, mlp_dim=768)
        >>> tuple(block(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    parts = (
        "attention_norm", "attention", "attention_scale",
        "mlp_norm", "mlp", "mlp_scale",
    )  # fmt: skip

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        activation: str = "gelu_tanh",
        layer_norm_epsilon: float = 1e-6,
        layer_scale: float | None = None,
        qkv_bias: bool | str = True,
        positions: AttentionPositions | dict | None = None,
        attention_norm_inside: bool = False,
        mlp_norm_inside: bool = False,
        remat: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_scale = layer_scale
        self.qkv_bias = qkv_bias
        self.attention_norm_inside = attention_norm_inside
        self.mlp_norm_inside = mlp_norm_inside
        self.remat = remat

        self.add_part(LayerNorm, "attention_norm", layer_norm_epsilon)
        self.add_part(
            SelfAttention,
            "attention",
            num_heads,
            dropout_rate=attention_dropout_rate,
            qkv_bias=qkv_bias,
            norm_epsilon=layer_norm_epsilon if attention_norm_inside else None,
            positions=positions,
        )
        self.add_part(LayerNorm, "mlp_norm", layer_norm_epsilon)
        self.add_part(
            MLP,
            "mlp",
            mlp_dim,
            dropout_rate,
            activation,
            layer_norm_epsilon if mlp_norm_inside else None,
        )
        for name in ("attention_scale", "mlp_scale"):
            if layer_scale is None:
                setattr(self, name, None)
            else:
                self.add_part(LayerScale, name, layer_scale)
        self.add_part(Dropout, "dropout", dropout_rate)
        self.add_part(StochasticDepth, "stochastic_depth", stochastic_depth_rate)

    @property
    def positions(self) -> Any:
        return self.attention.positions

    def build(self, tokens_shape: Shape) -> None:
        check_tokens(self, tokens_shape)
        for name in self.parts:
            if (part := getattr(self, name)) is not None:
                part.build(tokens_shape)
        self.settle()

    def attended(self, tokens: Tensor, **options: Any) -> Tensor:
        """Returns what attention adds to the tokens; `options` are its arguments."""
        tokens = self.attention_norm(tokens, training=options["training"])
        return self.attention(tokens, **options)

    def transformed(self, tokens: Tensor, training: bool | None) -> Tensor:
        """Returns what the perceptron adds to the tokens."""
        tokens = self.mlp_norm(tokens, training=training)
        return self.mlp(tokens, training=training)

    def call(
        self,
        tokens: Tensor,
        training: bool | None = None,
        return_attention_weights: bool = False,
        class_token_only: bool = False,
        grid: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        class_token_only |= self is forward_pass().class_token_block

        def encode(tokens: Tensor) -> Tensor:
            return self._encode(tokens, training, class_token_only, grid)

        if return_attention_weights:
            encode = with_attention_weights(encode, class_token_only)
        if self.remat and training:
            # How often `_encode` calls each layer that draws.
            uses = {
                self.attention.dropout: 1,
                self.dropout: 1,
                self.mlp.dropout: 2,
                self.stochastic_depth: 2,
            }
            encode = rematerialized(encode, uses, self.weights)
        if (watcher := forward_pass().watcher) is not None:
            return watcher.block(encode, tokens)
        return encode(tokens)

    def _encode(self, tokens, training, class_token_only, grid):
        watcher = forward_pass().watcher
        first_alone = class_token_only and not (watcher and watcher.all_tokens)
        branch = self.attended(
            tokens,
            training=training,
            class_token_only=first_alone,
            grid=grid,
        )
        branch = self.dropout(branch, training=training)
        if self.attention_scale is not None:
            branch = self.attention_scale(branch)
        if first_alone:
            tokens = tokens[:, :1]
        tokens = tokens + self.stochastic_depth(branch, training=training)
        branch = self.transformed(tokens, training)
        if self.mlp_scale is not None:
            branch = self.mlp_scale(branch)
        tokens = tokens + self.stochastic_depth(branch, training=training)
        if watcher is not None:
            watcher.tokens(tokens)
        return tokens[:, :1] if class_token_only and not first_alone else tokens

    def compute_output_spec(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.attention.compute_output_spec(tokens, *args, **kwargs)


@keras.saving.register_keras_serializable(package="keras_vit")
class PostNormBlock(TransformerBlock):
    """A `TransformerBlock` whose norms come after the attention and the perceptron.

    What they give is added to the tokens.

    Args:
        num_heads: int, divides the size of a token.
        mlp_dim: int, the size of the perceptron's hidden layer.
        **others: see `TransformerBlock`.

    Call arguments:
        See `TransformerBlock`.

    Returns:
        See `SelfAttention`.

    Source:
        `EvaBlockPostNorm` of timm.

    Example:
        >>> block = PostNormBlock(num_heads=3, mlp_dim=768)
        >>> tuple(block(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    def attended(self, tokens: Tensor, **options: Any) -> Tensor:
        tokens = self.attention(tokens, **options)
        return self.attention_norm(tokens, training=options["training"])

    def transformed(self, tokens: Tensor, training: bool | None) -> Tensor:
        tokens = self.mlp(tokens, training=training)
        return self.mlp_norm(tokens, training=training)
