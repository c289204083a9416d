"""The pre-norm transformer encoder block."""

import keras

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.composite import Composite
from keras_vit.layers.last_block import computes_class_token_alone
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP
from keras_vit.layers.remat import Dropout, rematerialized
from keras_vit.layers.stochastic_depth import StochasticDepth
from keras_vit.layers.watching import current_watcher


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
        activation: of the perceptron, `"gelu_tanh"` as released or `"gelu"`.
        layer_norm_epsilon: float, added to the variance by both norms.
        relative_positions: bool, of the attention, see `SelfAttention`.
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).
        training: bool, whether dropout and stochastic depth are on.
        return_attention_weights: bool.
        class_token_only: bool, whether only the first token's output is computed.
        remat: bool, whether training keeps the block's input alone and computes the
            rest once more for the gradient: less memory for a third more time. Dropout
            and stochastic depth drop the same then, and the same as without it.

    Returns:
        Float tensor (batch, queries, hidden_size), where queries is 1 with
        `class_token_only`, else the number of tokens; with `return_attention_weights`
        a pair of it and a float32 tensor (batch, num_heads, queries, tokens).

    Raises:
        ValueError: `num_heads` does not divide the size of a token, or a rate is
            outside [0, 1).

    Source:
        Paper section 3.1, equations 2 and 3; `encoderblock_0`, ... in the released
        files.

    Example:

    >>> block = TransformerBlock(num_heads=3, mlp_dim=768)
    >>> tuple(block(keras.random.normal((2, 7, 192))).shape)
    (2, 7, 192)
    """

    parts = ("attention_norm", "attention", "mlp_norm", "mlp")
    # The classes of the two branches.
    self_attention = SelfAttention
    perceptron = MLP

    def __init__(
        self,
        num_heads,
        mlp_dim,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        activation="gelu_tanh",
        layer_norm_epsilon=1e-6,
        relative_positions=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.relative_positions = relative_positions

        dtype = self.dtype_policy
        self.attention_norm = LayerNorm(
            layer_norm_epsilon, dtype=dtype, name="attention_norm"
        )
        self.attention = self.self_attention(
            num_heads,
            attention_dropout_rate,
            relative_positions,
            dtype=dtype,
            name="attention",
        )
        self.mlp_norm = LayerNorm(layer_norm_epsilon, dtype=dtype, name="mlp_norm")
        self.mlp = self.perceptron(
            mlp_dim, dropout_rate, activation, dtype=dtype, name="mlp"
        )
        self.dropout = Dropout(dropout_rate, dtype=dtype, name="dropout")
        self.stochastic_depth = StochasticDepth(
            stochastic_depth_rate, dtype=dtype, name="stochastic_depth"
        )

    def build(self, tokens_shape):
        for name in self.parts:
            getattr(self, name).build(tokens_shape)
        self.settle()

    def call(
        self,
        tokens,
        training=None,
        return_attention_weights=False,
        class_token_only=False,
        remat=False,
    ):
        class_token_only = class_token_only or computes_class_token_alone(self)

        def encode(tokens):
            return self._encode(
                tokens, training, return_attention_weights, class_token_only
            )

        if remat and training:
            encode = rematerialized(encode, self._random_layers)
        if (watcher := current_watcher()) is not None:
            return watcher.block(encode, tokens)
        return encode(tokens)

    @property
    def _random_layers(self):
        """How often `_encode` calls each."""
        return {
            self.attention.dropout: 1,
            self.dropout: 1,
            self.mlp.dropout: 2,
            self.stochastic_depth: 2,
        }

    def _encode(self, tokens, training, return_attention_weights, class_token_only):
        watcher = current_watcher()
        first_alone = class_token_only and watcher is None
        branch = self.attention(
            self.attention_norm(tokens),
            training=training,
            return_attention_weights=return_attention_weights,
            class_token_only=first_alone,
        )
        if return_attention_weights:
            branch, weights = branch
        branch = self.dropout(branch, training=training)
        if first_alone:
            tokens = tokens[:, :1]
        tokens = tokens + self.stochastic_depth(branch, training=training)
        branch = self.mlp(self.mlp_norm(tokens), training=training)
        tokens = tokens + self.stochastic_depth(branch, training=training)
        if watcher is not None:
            watcher.tokens(tokens)
            if class_token_only:
                tokens = tokens[:, :1]
                weights = weights[:, :, :1] if return_attention_weights else None
        return (tokens, weights) if return_attention_weights else tokens

    def compute_output_spec(
        self,
        tokens,
        training=None,
        return_attention_weights=False,
        class_token_only=False,
        remat=False,
    ):
        return self.attention.compute_output_spec(
            tokens, training, return_attention_weights, class_token_only
        )

    def compute_output_shape(self, tokens_shape):
        return tokens_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "stochastic_depth_rate": self.stochastic_depth_rate,
            "activation": self.activation,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "relative_positions": self.relative_positions,
        }
