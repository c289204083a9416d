"""The Gaussian error linear unit (arXiv 1606.08415), in its two forms."""

import math

import keras
from keras import ops

# 0.5 (1 + tanh(z)) is sigmoid(2 z), with z = sqrt(2 / pi) (x + 0.044715 x^3).
_LINEAR = 2.0 * math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def gelu(x, training=False):
    """Returns the tanh form of GELU, as in `flax.linen.gelu` and the released models.

    In training it has a gradient of its own on TensorFlow: that of the library keeps
    more tensors of the size of `x`, the largest of a transformer, than the two needed.
    """
    if training and keras.backend.backend() == "tensorflow":
        return _lean_gelu(x)
    # TensorFlow's optimiser sorts operands by name, and finds a GELU to fuse with the
    # product before it only if this name comes after that layer's, "expand".
    with keras.name_scope("gelu"):
        return ops.gelu(x, approximate=True)


def exact_gelu(x, training=False):
    """Returns the exact GELU, as in `torch.nn.GELU`, timm and transformers."""
    return ops.gelu(x, approximate=False)


@ops.custom_gradient
def _lean_gelu(x):
    gate = ops.sigmoid(x * (_LINEAR + _CUBIC * ops.square(x)))
    output = x * gate

    def gradient(upstream):
        slope = _LINEAR + 3.0 * _CUBIC * ops.square(x)
        return upstream * (gate + output * (1.0 - gate) * slope)

    return output, gradient


ACTIVATIONS = {"gelu_tanh": gelu, "gelu": exact_gelu}
