"""The Gaussian error linear unit, in its two forms."""

import math

import keras
from keras import ops

# 0.5 (1 + tanh(z)) is sigmoid(2 z), with z = sqrt(2 / pi) (x + 0.044715 x^3).
_LINEAR = 2.0 * math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def gelu(x, training=False):
    """Returns the tanh form of GELU, which is what the released models compute.

    Args:
        x: float tensor.
        training: bool, whether a gradient will be taken. On TensorFlow it then has
            one of its own: that of the library keeps more tensors of the size of
            `x`, the largest of a transformer, than the two that it takes.

    Returns:
        Float tensor of the same shape.

    Source:
        Hendrycks and Gimpel, arXiv 1606.08415; `flax.linen.gelu`.

    Example:

    >>> float(gelu(keras.ops.ones(())))
    0.841192...
    """
    if training and keras.backend.backend() == "tensorflow":
        return _lean_gelu(x)
    # TensorFlow's optimiser sorts operands by name, and finds a GELU to fuse with the
    # product before it only if this name comes after that layer's, "expand".
    with keras.name_scope("gelu"):
        return ops.gelu(x, approximate=True)


def exact_gelu(x, training=False):
    """Returns x times the normal distribution function of x.

    Args:
        x: float tensor.
        training: bool, makes no difference.

    Returns:
        Float tensor of the same shape.

    Source:
        Hendrycks and Gimpel, arXiv 1606.08415; `torch.nn.GELU`, which timm and
        transformers use.

    Example:

    >>> float(exact_gelu(keras.ops.ones(())))
    0.841344...
    """
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
