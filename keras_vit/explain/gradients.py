"""Attention weighted by what it does for a class."""

import keras
import numpy as np
from keras import ops

from keras_vit.explain.running import checked, gradients, run
from keras_vit.layers import ClassTokenPooling, LayerNorm, PatchPooling
from keras_vit.layers.watching import Watcher, watched_by
from keras_vit.structure import check_once

# Where a model without a head ends.
_FEATURES = (
    ClassTokenPooling,
    LayerNorm,
    PatchPooling,
    keras.layers.GlobalAveragePooling1D,
)
# Many of the gradients are too small for float16.
_SCALE = 1024.0


class _Shapes(Watcher):
    """Remembers the shape of each layer's attention weights."""

    def __init__(self):
        self.shapes = []

    def attention(self, weights):
        self.shapes.append(tuple(weights.shape))
        return weights


class _Weighting(Watcher):
    """Lets the gradient of each place be its layer's weighted attention."""

    def __init__(self, places):
        self.places = iter(places)

    def block(self, encode, tokens):
        def at(tokens, place):
            # Once more for the gradient, when nobody may be watching.
            with watched_by(_WeightingOne(place)):
                return encode(tokens)

        return keras.remat(at)(tokens, next(self.places))


class _WeightingOne(Watcher):
    """Does so in one layer."""

    def __init__(self, place):
        self.place = place

    def attention(self, weights):
        return _weighting(weights, self.place)


def gradient_attention(model, images, classes=None):
    """Returns what each token adds to a class by way of the attention.

    In every layer the attention weights are multiplied by the gradient of the class's
    output with respect to them, what is negative is left out, and the heads are
    averaged. What these matrices pass on is added up through the layers, beginning
    with the identity.

    Images are computed one after another, and a layer is computed once more for its
    gradient: only what goes into it is kept.

    Args:
        model: `keras.Model` of `TransformerBlock` layers, from images to (images,
            classes).
        images: float array (images, height, width, channels) in [-1, 1].
        classes: int, or one an image: the class to ask for. None for that of the
            largest output.

    Returns:
        float32 array (images, tokens, tokens), in units of the model's output, whose
        rows do not sum to one. `patch_map` makes a picture of it.

    Raises:
        ValueError: as `attention_maps`; or the model has no head, no such class, or
            one that no attention changes, as those of a new head.

    Source:
        Chefer, Gur and Wolf, arXiv 2103.15679, equations 5 and 6.

    Example:

    >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=192)
    >>> model.get_layer("head").set_weights([np.eye(192), np.zeros(192)])
    >>> relevance = gradient_attention(model, np.ones((1, 32, 32, 3), "float32"), 5)
    >>> patch_map(relevance, grid_size(model)).shape
    (1, 2, 2)
    """
    images = checked(model, images)
    _check_head(model)
    classes = _one_an_image(classes, len(images), model)
    seen = _Shapes()
    run(model, images[:1], lambda part: seen)
    check_once(model, len(seen.shapes) - 1)
    num_tokens = seen.shapes[0][-1]
    relevances = np.empty((len(images), num_tokens, num_tokens), "float32")
    for index, asked in enumerate(classes):
        places = [
            np.zeros((1, queries, tokens), "float32")
            for _, _, queries, tokens in seen.shapes
        ]
        matrices = gradients(
            lambda places, image=images[index : index + 1], asked=asked: _output(
                model, image, asked, places
            ),
            places,
        )
        relevance = np.eye(num_tokens)
        for matrix in matrices:
            relevance += matrix[0] @ relevance
        relevances[index] = relevance
        if (relevances[index] == np.eye(num_tokens)).all():
            raise ValueError(
                f"No attention changes what the model {model.name} says of image "
                f"{index}: its head is new, or all zeros as in the original "
                "ImageNet-21k files. Fine-tune it first."
            )
    return relevances


def _output(model, image, asked, places):
    """The class's output, whose gradient by the places is the weighted attention."""
    with watched_by(_Weighting(places)):
        outputs = ops.cast(model(image, training=False), "float32")
    if asked is None:
        asked = ops.argmax(outputs, axis=-1)
    chosen = ops.one_hot(asked, outputs.shape[-1], dtype="float32")
    return _SCALE * ops.sum(outputs * chosen)


@ops.custom_gradient
def _weighting(weights, place):
    def gradient(*upstreams, upstream=None):
        # JAX and TensorFlow pass it by place, PyTorch by name.
        upstream = upstreams[0] if upstream is None else upstream
        weighted = ops.relu(upstream * weights) / _SCALE
        return upstream, ops.mean(weighted, axis=1)

    return ops.copy(weights), gradient


def _check_head(model):
    last = model.layers[-1]
    while isinstance(last, keras.Model):
        last = last.layers[-1]
    features = isinstance(last, _FEATURES) or last.name == "pre_logits"
    if len(model.output_shape) != 2 or features:
        raise ValueError(
            f"The model {model.name} has no head that gives (images, classes): pass "
            "one made with include_top=True and pooled."
        )


def _one_an_image(classes, count, model):
    """The class to ask for of each image, None for the likeliest."""
    if classes is None:
        return [None] * count
    number = model.output_shape[1]
    asked = [classes] * count if np.ndim(classes) == 0 else list(classes)
    if len(asked) != count:
        raise ValueError(f"{len(asked)} classes for {count} images: pass one an image.")
    for one in asked:
        if not 0 <= one < number:
            raise ValueError(
                f"The model {model.name} has no class {one}: pass one of 0 to "
                f"{number - 1}."
            )
    return [int(one) for one in asked]
