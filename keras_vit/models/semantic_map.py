"""What segmenters predict, as a map of classes."""

from typing import Any

import keras
from keras import ops


def semantic_map(outputs: Any, image_size: Any = None) -> Any:
    """Returns a score of every class for every pixel, of the outputs of a segmenter.

    Its `argmax` over the last axis is the class.

    Args:
        outputs: what the model gives: logits (batch, height, width, classes), or a dict
            of `"class_logits"` (batch, queries, classes + 1) and `"mask_logits"`
            (batch, queries, rows, columns).
        image_size: (height, width) of the map, to which logits are brought, bilinear;
            by default that of the outputs.

    Returns:
        Float tensor (batch, height, width, classes), at least float32. Of logits their
        softmax. Of masks the sum over the queries of the probability of their class
        times that of their mask, which does not sum to one over the classes.

    Source:
        `post_process_semantic_segmentation` of transformers' EoMT.

    Example:
        >>> masks = {"class_logits": np.zeros((2, 9, 4)),
        ...          "mask_logits": np.zeros((2, 9, 8, 12))}
        >>> tuple(semantic_map(masks, (32, 48)).shape)
        (2, 32, 48, 3)
    """
    if not isinstance(outputs, dict):
        return ops.softmax(_resized(_as_float(outputs), image_size), axis=-1)
    classes = ops.softmax(_as_float(outputs["class_logits"]), axis=-1)[..., :-1]
    masks = ops.transpose(_as_float(outputs["mask_logits"]), (0, 2, 3, 1))
    masks = ops.sigmoid(_resized(masks, image_size))
    return ops.einsum("bhwq,bqc->bhwc", masks, classes)


def _as_float(values):
    values = ops.convert_to_tensor(values)
    is_double = keras.backend.standardize_dtype(values.dtype) == "float64"
    return values if is_double else ops.cast(values, "float32")


def _resized(maps, size):
    if size is None or tuple(size) == tuple(ops.shape(maps)[1:3]):
        return maps
    return ops.image.resize(maps, tuple(size), interpolation="bilinear")
