"""Attention sinks: patches at the border that attract attention whatever they show."""

import math

import numpy as np

from keras_vit.structure import prefix_tokens_of

# A sink gets at least so many times the attention of a patch when it is spread evenly.
SINK_FACTOR = 10


def received_attention(
    weights: np.ndarray, grid_size: tuple[int, int], num_registers: int = 0
) -> np.ndarray:
    """Returns the share of the attention that each patch receives.

    That is the mean over all heads and all queries.

    Args:
        weights: float array (images, heads, tokens, tokens), queries before keys.
        grid_size: (rows, columns) of the patches.
        num_registers: int, how many tokens before the patches are registers.

    Returns:
        Array (images, rows, columns). Its sum is one less what the tokens before the
        patches receive.

    Source:
        Darcet et al., arXiv 2309.16588, section 2.

    Example:
        >>> received_attention(np.full((1, 3, 5, 5), 0.2), (2, 2))
        array([[[0.2, 0.2],
                [0.2, 0.2]]])
    """
    first = prefix_tokens_of(weights, grid_size, num_registers=num_registers)
    received = np.asarray(weights).mean(axis=(1, 2))[:, first:]
    return received.reshape(-1, *grid_size)


def attention_sinks(received: np.ndarray) -> np.ndarray:
    """Returns which patches are attention sinks.

    A sink lies in the first or last row or column, and receives at least ten times
    the attention that it would get if all patches got the same.

    Args:
        received: float array (..., rows, columns), such as `received_attention`
            returns.

    Returns:
        bool array of the same shape.

    Source:
        Darcet et al., arXiv 2309.16588, describe such tokens; the rule is our own.

    Example:
        >>> received = np.zeros((14, 14))
        >>> received[0, 0] = 0.1
        >>> np.argwhere(attention_sinks(received))
        array([[0, 0]])
    """
    received = np.asarray(received)
    border = np.ones(received.shape[-2:], bool)
    border[1:-1, 1:-1] = False
    return border & (received >= SINK_FACTOR / math.prod(border.shape))
