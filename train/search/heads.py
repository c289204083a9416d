"""The models of a search: a backbone with a probe's head, and averages."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.structure import head_of
from train.models.averaging import averaged, members
from train.reports.compute import multiply_adds


def combined(
    networks: Sequence[keras.Model],
    weights: Sequence[float],
    shift: np.ndarray | None = None,
) -> keras.Model:
    """Returns one model whose logits are the weighted sum of those of networks.

    `shift`, (classes,), is added to them. A single network stays what it is, and its
    head gets weight and shift.
    """
    if len(networks) > 1:
        return averaged(networks, weights, shift)
    [network], [weight] = networks, weights
    head = head_of(network)
    kernel, bias = (weight * values for values in head.get_weights())
    head.set_weights([kernel, bias if shift is None else bias + shift])
    return network


def cost(model: keras.Model) -> float | None:
    """Returns how many times as much as its dearest network a model computes.

    It is 1 for a single network, and None where its operations cannot be counted.
    """
    parts = members(model)
    if not parts:
        return 1.0
    try:
        return multiply_adds(model) / max(map(multiply_adds, parts))
    except ValueError:
        return None
