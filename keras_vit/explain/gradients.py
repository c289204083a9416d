"""Attention weighted by the gradient of a class's output."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.explain.running import check_images, gradients, run
from keras_vit.layers import AttentionPooling
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.structure import check_outputs, gives_features, last_layer, layers_of

# Many of the gradients are too small for float16.
_SCALE = 1024.0


def gradient_attention(
    model: keras.Model,
    images: Any,
    classes: int | Sequence[int] | None = None,
    return_pooling: bool = False,
) -> np.ndarray | tuple[np.ndarray, np.ndarray | None]:
    """Returns how much each token contributes to a class through the attention.

    In every layer the attention weights are multiplied by the gradient of the class's
    output with respect to them, negative products become zero, and the heads are
    averaged. These matrices are accumulated through the layers, beginning with the
    identity.

    Images are computed one after another, and a layer is computed once more for its
    gradient: only what goes into it is kept.

    Args:
        model: `keras.Model` of `TransformerBlock` layers, from images to (images,
            classes).
        images: float array (images, height, width, channels) in [-1, 1].
        classes: int, or a sequence of one per image. None for the class of the
            largest output.
        return_pooling: bool, whether to return the weights of an attention pooling
            too, which are multiplied by their gradient likewise.

    Returns:
        float32 array (images, tokens, tokens), in units of the model's output, whose
        rows do not sum to one. `patch_map` makes a picture of it. With
        `return_pooling` also a float32 array (images, tokens), the `pooling` of
        `patch_map`, or None of a model without `AttentionPooling`.

    Raises:
        ValueError: as `attention_maps`; or the model has several outputs, no head, no
            such class, or one that no attention changes, such as one of a new head.

    Source:
        Chefer, Gur and Wolf, arXiv 2103.15679, equations 5 and 6.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=192)
        >>> model.get_layer("head").set_weights([np.eye(192), np.zeros(192)])
        >>> relevance = gradient_attention(model, np.ones((1, 32, 32, 3), "float32"), 5)
        >>> patch_map(relevance, grid_size(model)).shape
        (1, 2, 2)
    """
    check_outputs(model)
    images = check_images(model, images)
    _check_head(model)
    classes = _one_per_image(classes, len(images), model)
    shapes = []

    def see(layer: int, part: slice, weights: Any) -> None:
        shapes.append(weights.shape)

    run(model, images[:1], see, pooling=see)
    num_tokens = shapes[0][-1]
    relevances = np.empty((len(images), num_tokens, num_tokens), "float32")
    places = [np.zeros((1, *shape[2:]), "float32") for shape in shapes]
    pooled = None
    if layers_of(model, AttentionPooling):
        pooled = np.zeros((len(images), num_tokens), "float32")
    for index, number in enumerate(classes):
        output = functools.partial(_output, model, images[index : index + 1], number)
        matrices = gradients(output, places)
        if pooled is not None:
            # Tokens that the pooling leaves out come first.
            weights = matrices.pop()[0, 0]
            pooled[index, -len(weights) :] = weights
        relevance = np.eye(num_tokens)
        for matrix in matrices:
            relevance += matrix[0] @ relevance
        relevances[index] = relevance
        if (relevances[index] == np.eye(num_tokens)).all():
            raise ValueError(
                f"No attention changes the output of the model {model.name} for image "
                f"{index}: its head is new, or all zeros as in the original "
                "ImageNet-21k files. Fine-tune it first."
            )
    return (relevances, pooled) if return_pooling else relevances


def _output(model, image, number, places):
    """Returns a class's output, whose gradient by `places` is the weighted attention.

    Each layer is computed once more for its gradient, when its watcher sees it again.
    """
    places = iter(places)

    def block(encode: Callable, tokens: Any) -> Any:
        def at_place(tokens: Any, place: Any) -> Any:
            with running(watcher=Watcher(lambda weights: _weighting(weights, place))):
                return encode(tokens)

        return keras.remat(at_place)(tokens, next(places))

    def pooling(weights: Any) -> Any:
        return _weighting(weights, next(places))

    with running(watcher=Watcher(block=block, pooling=pooling)):
        outputs = ops.cast(model(image, training=False), "float32")
    if number is None:
        number = ops.argmax(outputs, axis=-1)
    chosen = ops.one_hot(number, outputs.shape[-1], dtype="float32")
    return _SCALE * ops.sum(outputs * chosen)


@ops.custom_gradient
def _weighting(weights, place):
    def gradient(*upstreams: Any, upstream: Any = None) -> tuple[Any, Any]:
        # JAX and TensorFlow pass it by place, PyTorch by name.
        upstream = upstreams[0] if upstream is None else upstream
        weighted = ops.relu(upstream * weights) / _SCALE
        return upstream, ops.mean(weighted, axis=1)

    return ops.copy(weights), gradient


def _check_head(model):
    last = last_layer(model)
    if len(model.output_shape) != 2 or gives_features(last):
        raise ValueError(
            f"The model {model.name} has no head that gives (images, classes): pass "
            "one made with include_top=True and pooled."
        )


def _one_per_image(classes, count, model):
    if classes is None:
        return [None] * count
    number = model.output_shape[1]
    classes = [classes] * count if np.ndim(classes) == 0 else list(classes)
    if len(classes) != count:
        raise ValueError(
            f"{len(classes)} classes for {count} images: pass one per image."
        )
    for one in classes:
        if not isinstance(one, (int, float, np.number)) or not 0 <= one < number:
            raise ValueError(
                f"The model {model.name} has no class {one!r}: pass one of 0 to "
                f"{number - 1}, a place in the head's class_names."
            )
    return [int(one) for one in classes]
