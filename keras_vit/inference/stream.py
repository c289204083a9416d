"""Photos in, answers out: classes or features of photos of any size and kind."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.inference.preprocessing import check_scores, named, names_of_classes
from keras_vit.layers import PatchEncoder
from keras_vit.models.base import of_features
from keras_vit.runtimes.predictor import Predictor
from keras_vit.structure import (
    bits_of,
    check_outputs,
    head_activation,
    head_of,
    last_layer,
    layer_of_pixels,
    layers_of,
    pooled_features,
    preparation_of,
    problem_type_of,
)
from keras_vit.structure.image_sizes import (
    check_images_shape,
    own_image_size,
    takes_any_size,
)
from zoo.common.regular_files import with_text
from zoo.network import pair, positive_int
from zoo.network.head import NUMBERS, PROBABILITIES, Answers, numbered_names
from zoo.network.preparation import check_bits
from zoo.photos import batches, prepare


def classify(
    model: keras.Model,
    photos: Any,
    top: int = 5,
    *,
    class_names: Sequence[str] | str | None = None,
    batch_size: int = 32,
    image_size: int | tuple[int, int] | None = None,
    bits: int | None = None,
) -> list[list[tuple]]:
    """Returns the most likely classes of photos, with their probabilities.

    Of a model for numbers, whose head has the `problem_type` `"regression"`, these are
    returned instead.

    Photos are decoded upright and brought to the model's size as evaluation does it,
    by its head's `preparation`, in threads beside the model. `preprocess_input` is part
    of that. The model is compiled at the first call, and the next ones use it.

    Args:
        model: `keras.Model` that ends in a head for classes: from `keras_vit`, a run's
            `model.keras` by `keras.saving.load_model`, or one around these.
        photos: a photo or an iterable of photos, of one kind or several: paths of files
            that `zoo.photos.decode` reads, such as JPEG and PNG, their bytes,
            `PIL.Image.Image`, or arrays (height, width) or (height, width, channels) in
            [0, 255]; or an array (photos, height, width, channels). A few batches of
            them are in memory at a time.
        top: int, how many classes per photo.
        class_names: sequence of str, one per class, or `"imagenet2012"` or
            `"imagenet21k"` for a model of these classes; by default the names in the
            model's head.
        batch_size: int, photos computed at a time.
        image_size: of a model for images of any size, the int or (height, width) in
            pixels that photos are brought to; by default that of its own positions.
        bits: int, how many bits the values of PNG and TIFF files of 16 bits have, such
            as 12 of many cameras; by default what the file's sBIT chunk says, else
            those of the model's head, else 16.

    Returns:
        A list per photo of (class id, class name, probability), the best first, as
        `decode_predictions` and `keras.applications` have it, also of a single photo.
        Probabilities are the softmax of logits, or their sigmoid, each class for
        itself, where the head's `problem_type` is `"multi_label_classification"`; those
        of a head with a softmax or sigmoid of its own are its outputs. Of a model for
        numbers the list has every output in its order: (output, name, number).

    Raises:
        ValueError: the model is not of one input and one output, or has no such head,
            its names are not known, it is new and answers nothing, it has one class,
            which every photo would be, or a photo cannot be decoded.
        OSError: the file of a photo cannot be read.
        zoo.StoreError: the names of ImageNet-21k cannot be fetched.

    Source:
        `keras.applications.imagenet_utils.decode_predictions`.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32,
        ...                           class_names=("cat", "dog"))
        >>> model.get_layer("head").set_weights([np.zeros((192, 2)), np.array([0, 2])])
        >>> [[best, other]] = classify(model, np.zeros((48, 64, 3), "uint8"))
        >>> number, name, probability = best
        >>> number, name, round(probability, 2)
        (1, 'dog', 0.88)
    """
    check_outputs(model)
    top = positive_int(top, "top")
    answers, names = _answers_and_names(model, class_names)
    predictor = _predictor(model, "classes", batch_size, model.outputs[0])
    of_photos = []
    for outputs in _outputs(model, predictor, photos, image_size, bits):
        values = answers.values(outputs.astype("float64"))
        if not np.isfinite(values).all():
            raise ValueError(
                f"The outputs of {model.name} are not finite: load weights that are."
            )
        if answers.problem_type != NUMBERS:
            check_scores(values)
        of_photos += named(answers.best(values, top), names)
    return of_photos


def embed(
    model: keras.Model,
    photos: Any,
    *,
    batch_size: int = 32,
    image_size: int | tuple[int, int] | None = None,
    bits: int | None = None,
) -> np.ndarray:
    """Returns the features of photos, which the head of a model computes with.

    Args:
        model: `keras.Model` that ends in a head or, with `include_top=False`, in a
            pooling or `pre_logits`, whose outputs are then the features.
        photos: see `classify`.
        batch_size: int, photos computed at a time.
        image_size: see `classify`.
        bits: see `classify`.

    Returns:
        float32 array (photos, features), in the order of the photos. Features are as
        many as the hidden size, or `representation_size` of a model with `pre_logits`.

    Raises:
        ValueError: the model has no such features, or a photo cannot be decoded.
        OSError: the file of a photo cannot be read.

    Source:
        Paper section 3.1: what the classification head is attached to.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> embed(model, [np.zeros((48, 64, 3), "uint8")] * 2).shape
        (2, 192)
    """
    check_outputs(model)
    features = pooled_features(model)
    if features is None:
        raise ValueError(
            f"{model.name} ends in the layer {model.layers[-1].name}, and embed takes "
            "models that end in a head, a pooling or pre_logits: pass "
            "keras.Model(model.input, features), or build it with include_top=False "
            'and pooling="token".'
        )
    predictor = _predictor(model, "features", batch_size, features)
    parts = [np.zeros((0, features.shape[1]), "float32")]
    parts += [
        outputs.astype("float32")
        for outputs in _outputs(model, predictor, photos, image_size, bits)
    ]
    return np.concatenate(parts)


def _answers_and_names(model, class_names):
    """Returns the `Answers` of a model, and a (class id, class name) per output."""
    activation, shape = head_activation(model), model.output_shape
    if len(shape) != 2 or activation not in ("linear", *PROBABILITIES):
        raise ValueError(
            f"{model.name} ends in the layer {last_layer(model).name} of outputs "
            f"{shape}, and not in a head for the classes of an image: for features "
            "call keras_vit.embed, else build it with classes=K and "
            "classifier_activation=None."
        )
    problem_type, outputs = problem_type_of(model), shape[-1]
    if class_names is None:
        class_names = getattr(head_of(model), "class_names", None)
    if class_names is None and problem_type == NUMBERS:
        class_names = numbered_names(outputs, problem_type)
    names = names_of_classes(outputs, class_names)
    texts = tuple(name for _, name in names)
    answers = Answers(texts, problem_type, activation, activation == "linear")
    answers.check(model.name)
    return answers, names


def _predictor(model, kind, batch_size, outputs):
    """Returns the predictor of some outputs of a model, kept with the model."""
    # Beside the model, as `keras.Model.predict` keeps its function: it goes with it.
    name = f"_keras_vit_{kind}"
    predictor = getattr(model, name, None)
    if (
        predictor is None
        or predictor.batch_size != batch_size
        or predictor.model.outputs[0] is not outputs
    ):
        is_whole = outputs is model.outputs[0]
        of_outputs = model if is_whole else of_features(model, outputs)
        predictor = Predictor(of_outputs, batch_size)
        setattr(model, name, predictor)
    return predictor


def _outputs(model, predictor, photos, image_size, bits):
    """Yields a model's outputs for batches of photos."""
    size, channels = _size_and_channels(model, image_size)
    # A model around ours may begin with a layer for pixels.
    takes_pixels = layer_of_pixels(model) is not None
    preparation = preparation_of(model)
    bits = bits_of(model) if bits is None else check_bits(bits)

    def prepared(numbered: tuple[int, Any]) -> np.ndarray:
        number, photo = numbered
        try:
            image = prepare(photo, size, preparation, channels, bits)
        except ValueError as error:
            raise ValueError(f"photos[{number}]: {error}") from error
        except OSError as error:
            if not os.path.isdir(photo):
                raise with_text(error, f"photos[{number}]: {error}") from error
            raise ValueError(
                f"photos[{number}]: {photo} is a folder: pass its files, "
                f'sorted(pathlib.Path({str(photo)!r}).glob("*.jpg")).'
            ) from error
        return image * 127.5 + 127.5 if takes_pixels else image

    read = batches(enumerate(_each(photos)), prepared, predictor.batch_size)
    with contextlib.closing(read):
        for _, images in read:
            yield predictor(images)


def _size_and_channels(model, image_size):
    """Returns the (height, width) that photos are brought to, and the channels."""
    _, *size, channels = model.input_shape
    of_any_size = len(size) == 2 and bool(layers_of(model, PatchEncoder))
    of_any_size = of_any_size and takes_any_size(model)
    if len(size) != 2 or channels not in (1, 3) or (None in size and not of_any_size):
        raise ValueError(
            f"{model.name} takes inputs of shape {model.input_shape}, and photos have "
            "a fixed height and width and 1 or 3 channels: build it with image_size "
            "and channels=3."
        )
    if image_size is None:
        return own_image_size(model), channels
    if not of_any_size:
        raise ValueError(
            f"{model.name} takes images of {size[0]}x{size[1]} alone, got "
            f"image_size={image_size!r}: leave it out, or pass "
            "keras_vit.at_image_size(model, (None, None)) as the model."
        )
    image_size = pair(image_size, "image_size")
    # Before the first photo is read.
    check_images_shape(model, (1, *image_size, channels))
    return image_size, channels


def _each(photos):
    """Returns an iterator of single photos."""
    if isinstance(photos, (str, os.PathLike, bytes, bytearray, memoryview)):
        return iter([photos])
    # Arrays and tensors have shapes; images of Pillow cannot be iterated.
    is_pillow = not hasattr(photos, "shape") and hasattr(photos, "__array_interface__")
    if is_pillow or len(getattr(photos, "shape", ())) in (2, 3):
        return iter([photos])
    try:
        return iter(photos)
    except TypeError as error:
        raise ValueError(
            "photos are paths, bytes, arrays or images of Pillow, or an iterable of "
            f"them, got {type(photos).__name__}."
        ) from error
