"""Filters of the layer that reads the image."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_vit.layers import PatchEncoder, StdConv2D
from keras_vit.structure import layers_of


@dataclasses.dataclass(frozen=True)
class Filters:
    """The filters that read the image.

    Args:
        components: float32 array (components, height, width, channels), the principal
            components of the filters, each of norm 1.
        explained_variance_ratio: float32 array (components,), the share of the
            filters' variance that each explains.
        kernel: float32 array (height, width, channels, filters), the filters
            themselves; those of a hybrid's convolution as it applies them,
            standardised.
        layer: str, the name of the layer.

    Source:
        Paper section 4.5.

    Example:
        >>> filters = embedding_filters(VisionTransformer("ViT-Ti_16", image_size=32))
        >>> filters.layer, filters.kernel.shape
        ('embedding', (16, 16, 3, 192))
    """

    components: np.ndarray
    explained_variance_ratio: np.ndarray
    kernel: np.ndarray
    layer: str


def embedding_filters(model: keras.Model, components: int = 28) -> Filters:
    """Returns the filters that read the image, and their principal components.

    They are those of the patch embedding, or of a hybrid's root convolution, because
    its patch embedding is applied to features.

    Args:
        model: `keras.Model` with a `PatchEncoder` or a `StdConv2D`.
        components: int, how many principal components; all, if there are fewer.

    Returns:
        `Filters`. A component's sign is arbitrary: here its largest entry is positive.

    Raises:
        ValueError: the model has no such layer, or all its filters are equal.

    Source:
        Paper section 4.5 and figure 7, left.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
        >>> embedding_filters(model).components.shape
        (28, 16, 16, 3)
    """
    readers = layers_of(model, PatchEncoder, StdConv2D)
    if not readers:
        raise ValueError(
            f"The model {model.name} has neither a PatchEncoder nor a StdConv2D: pass "
            "one of ours."
        )
    first, kernel = readers[0], readers[0].kernel
    if isinstance(first, StdConv2D):
        kernel = first.standardized(kernel)
    kernel = ops.convert_to_numpy(ops.cast(kernel, "float32"))
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    if (filters == filters[0]).all():
        raise ValueError(
            f"All filters of {first.name} of the model {model.name} are equal: load "
            "weights into it."
        )
    directions, shares = principal_components(filters, components)
    return Filters(
        directions.reshape(-1, *kernel.shape[:-1]).astype("float32"),
        shares.astype("float32"),
        kernel,
        first.name,
    )


def principal_components(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the directions in which rows differ most, and their shares of variance.

    They are float64 (count, columns), orthonormal, the largest entry of each positive;
    and float64 (count,). There is at most one direction less than there are rows.
    """
    rows = np.asarray(rows, "float64")
    centred = rows - rows.mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    largest = np.abs(directions).argmax(axis=1)[:, None]
    directions *= np.sign(np.take_along_axis(directions, largest, axis=1))
    count = min(count, len(rows) - 1)
    return directions[:count], (values**2 / np.sum(values**2))[:count]
