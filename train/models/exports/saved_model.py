"""Writer of TensorFlow SavedModels, which load without this package."""

import errno
import json
import os
import pathlib
import tempfile
from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_vit.layers.forward_pass import running
from keras_vit.runtimes.litert import quiet_tensorflow
from keras_vit.runtimes.precision import in_float32
from keras_vit.structure import bits_of, preparation_of, problem_type_of
from keras_vit.structure.image_sizes import own_image_size
from train.common.errors import RunError
from train.common.files import make_folder, refuse_others, whole_folder
from train.data.transforms.decoding import decode_in_graph
from train.data.transforms.graph_fitting import fitted_in_graph
from train.data.transforms.preprocessing import to_model_range
from train.models.exports import writing
from train.models.exports.description import FACTS
from train.models.exports.writing import body_and_head, logits_of
from zoo.network.head import NUMBERS, SEVERAL_CLASSES

# Models of keras_vit end in one of these layers, with a head and without.
_LAST_LAYERS = ("head", "pre_logits", "norm_after_pooling", "pooling")


def write_saved_model(
    model: keras.Model,
    folder: str | os.PathLike,
    *,
    class_names: Sequence[str] | None = None,
) -> None:
    """Writes a model as a SavedModel for TensorFlow, TensorFlow Serving and Hub.

    `tf.saved_model.load`, TensorFlow Serving (see `add_version`), `tensorflow_hub.load`
    and `tensorflow_hub.KerasLayer` open it. Images are float32 (batch, height, width,
    channels). **Their size and range differ between signatures, and the range is not
    checked**::

        signature             takes                                 returns
        serving_default       images in [-1, 1], the model's size   logits
        features              images in [-1, 1], the model's size   features
        serve_bytes           image_bytes: string (batch,)          logits,
                                                                    probabilities, label
        image_classification  images in [0, 1], any size            default: logits
        image_feature_vector  images in [0, 1], any size            default: features
        loaded(images)        images in [0, 1], any size            the logits

    Of a model for images of any size, `serving_default` and `features` take images of
    any size whose sides are multiples of its patch size; the others resize images to
    the size that its positions are of.

    - `logits` are float32 (batch, classes), before any activation of the head;
      `features` are the head's input, (batch, hidden_size or representation_size).
      Without a head there is no `image_classification`, and features replace logits.
    - `image_bytes` are JPEG, PNG and GIF files but those that docs/export.md leaves
      out: decoded, to grayscale for models of 1 channel, rotated by their EXIF data,
      and brought to the model's size, as images of any size are, as its preparation of
      photos says; PNG of 16 bits have the bits that its head says. Broken and other
      ones raise `tf.errors.InvalidArgumentError`.
    - `probabilities` are the softmax of the logits, their sigmoid where the head is of
      several classes at once, or the head's own activation. `label`, with `class_names`
      only, is the most likely class, a string (batch,). A head for numbers has neither:
      its logits are these.
    - `loaded(images, training=True)` turns on dropout and stochastic depth. Gradients
      reach `loaded.trainable_variables`.
    - `class_names` are in `assets/class_names.txt`, one per line, in UTF-8;
      `loaded.class_names_file.asset_path` is its path. `assets.extra/keras_vit.json`
      has the head's activation, its `problem_type` where it is not one class of
      several, and the preparation and the bits of photos.

    Args:
        model: a pooled model of `keras_vit`, with or without head.
        folder: str or path, made if missing. An earlier SavedModel in it is replaced
            once the new one is complete.
        class_names: None, or a sequence of str in the order of the logits.

    Raises:
        ValueError: the model is not such a model, or the names do not fit its classes.
        RunError: the folder holds something else, or cannot be written; Keras does not
            run on TensorFlow.

    Source:
        https://www.tensorflow.org/hub: reusable_saved_models,
        common_saved_model_apis/images and common_signatures/images;
        https://www.tensorflow.org/tfx/serving/signature_defs.

    Example:
        >>> config = keras_vit.ViTConfig(
        ...     hidden_size=8, num_layers=1, num_heads=1, mlp_dim=8, patch_size=16
        ... )
        >>> model = keras_vit.VisionTransformer(config, image_size=32, classes=2)
        >>> write_saved_model(model, "exported", class_names=["cat", "dog"])
        >>> loaded = tf.saved_model.load("exported")
        >>> tuple(loaded(tf.zeros((2, 48, 64, 3))).shape)
        (2, 2)
        >>> file = tf.io.encode_png(tf.zeros((48, 64, 3), "uint8"))
        >>> sorted(loaded.signatures["serve_bytes"](image_bytes=[file]))
        ['label', 'logits', 'probabilities']
    """
    if keras.backend.backend() != "tensorflow":
        raise RunError(
            "A SavedModel is written by Keras on TensorFlow, but KERAS_BACKEND is "
            f"{keras.backend.backend()!r}: unset it."
        )
    writing.check(model, class_names)
    _check_model(model)
    folder = pathlib.Path(folder)
    own = ("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra")
    refuse_others(folder, own, "a SavedModel")
    package, signatures = _package(in_float32(model), class_names)
    with (
        whole_folder(folder) as temporary,
        tempfile.TemporaryDirectory() as assets,
        quiet_tensorflow(),
    ):
        if class_names is not None:
            file = pathlib.Path(assets, "class_names.txt")
            file.write_bytes("".join(f"{name}\n" for name in class_names).encode())
            package.class_names_file = tf.saved_model.Asset(str(file))
        try:
            tf.saved_model.save(package, str(temporary), signatures=signatures)
        except tf.errors.OpError as error:
            raise OSError(error.message) from error
        # TensorFlow leaves this folder to other libraries.
        extra = temporary / "assets.extra"
        extra.mkdir()
        facts = json.dumps(writing.facts_of(model))
        (extra / FACTS).write_text(facts, encoding="utf-8")


def add_version(
    saved_model: str | os.PathLike, folder: str | os.PathLike
) -> pathlib.Path:
    """Moves a SavedModel into a served model's folder, as its next version.

    TensorFlow Serving loads the version with the highest number, from 1, and never sees
    it in part.

    Args:
        saved_model: str or path of a SavedModel's folder, on the same disk.
        folder: str or path of the served model, made if missing. Its versions stay.

    Returns:
        `pathlib.Path` of the new version's folder.

    Raises:
        RunError: the SavedModel cannot be moved there.

    Source:
        https://www.tensorflow.org/tfx/serving/serving_config.

    Example:
        >>> pathlib.Path("new").mkdir()  # where write_saved_model has written
        >>> add_version("new", "served").as_posix()
        'served/1'
    """
    folder = make_folder(folder, "--out")
    while True:
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
        version = folder / str(max(numbers, default=0) + 1)
        try:
            os.rename(saved_model, version)
            return version
        except OSError as error:
            # Another process may have taken the number: try the next one.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise RunError(
                    f"Cannot move {saved_model} to {version}: {error.strerror}. Mend "
                    "the permissions, or choose another folder on the same disk."
                ) from error


def _check_model(model):
    if len(model.output_shape) != 2:
        raise ValueError(
            f"{model.name} returns all tokens, {model.output_shape}, but signatures of "
            "a SavedModel return one vector per image: build it with "
            'pooling="token" or "gap".'
        )
    if (last := model.layers[-1].name) not in _LAST_LAYERS:
        raise ValueError(
            f"{model.name} ends in the layer {last!r}: pass a model of keras_vit, "
            f"whose last layer is one of {', '.join(_LAST_LAYERS)}."
        )


def _package(model, class_names):
    """Returns the object to save and its signatures."""
    *sides, channels = model.input_shape[1:]
    # Images of other sizes are brought to this one.
    image_size = own_image_size(model)
    of_model_size, of_any_size = (
        tf.TensorSpec((None, *size, channels), tf.float32, name="images")
        for size in (sides, (None, None))
    )
    files = tf.TensorSpec((None,), tf.string, name="image_bytes")
    body, head = body_and_head(model)

    @tf.function(autograph=False)
    def features(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        # A rotated image would pass otherwise: it has the same number of patches.
        inputs = tf.ensure_shape(inputs, of_model_size.shape)
        with running(whole_scores=True):
            return tf.cast(body(inputs, training=training), tf.float32)

    @tf.function(autograph=False)
    def logits(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return logits_of(head, features(inputs, training))

    problem_type = problem_type_of(model)
    has_classes = head is not None and problem_type != NUMBERS
    of_logits = keras.activations.softmax
    if problem_type == SEVERAL_CLASSES:
        of_logits = keras.activations.sigmoid
    kind, answer = ("logits", logits) if head else ("features", features)

    preparation, bits = preparation_of(model), bits_of(model)

    def resized(images: tf.Tensor) -> tf.Tensor:
        pixels = fitted_in_graph(255.0 * images, image_size, preparation)
        return to_model_range(pixels)

    @tf.function(autograph=False)
    def call(images: tf.Tensor, training: bool = False) -> tf.Tensor:
        return answer(resized(images), training)

    def read(file: tf.Tensor) -> tf.Tensor:
        pixels = decode_in_graph(file, channels, bits)
        return to_model_range(fitted_in_graph(pixels, image_size, preparation))

    def of_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        image = tf.TensorSpec(of_model_size.shape[1:])
        inputs = tf.map_fn(read, image_bytes, fn_output_signature=image)
        answers = {kind: answer(inputs)}
        if has_classes:
            is_linear = head.activation is keras.activations.linear
            activation = of_logits if is_linear else head.activation
            answers["probabilities"] = activation(answers[kind])
        if has_classes and class_names is not None:
            largest = tf.argmax(answers[kind], axis=-1)
            answers["label"] = tf.gather(tf.constant(class_names), largest)
        return answers

    for training in (False, True):
        call.get_concrete_function(of_any_size, training=training)
    package = tf.train.Checkpoint()
    package.__call__ = call
    package.variables = [variable.value for variable in model.variables]
    package.trainable_variables = [one.value for one in model.trainable_variables]
    package.regularization_losses = []
    signatures = {
        "serving_default": (lambda images: {kind: answer(images)}, of_model_size),
        "serve_bytes": (of_files, files),
        "features": (lambda images: {"features": features(images)}, of_model_size),
        "image_feature_vector": (
            lambda images: {"default": features(resized(images))},
            of_any_size,
        ),
    }
    if head:
        classified = (lambda images: {"default": call(images)}, of_any_size)
        signatures["image_classification"] = classified
    return package, {
        name: tf.function(function, input_signature=(takes,), autograph=False)
        for name, (function, takes) in signatures.items()
    }
