"""One interface to Keras models and to exported files, which need no Keras."""

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np

from train.common.errors import RunError
from train.inference import exported_model, finding
from train.inference.run_directory import how_to_name
from zoo.head import NUMBERS, ONE_CLASS, SEVERAL_CLASSES, answers_of, sigmoid
from zoo.preparation import asked_for

_BATCH_SIZE, _EXPORT_BATCH_SIZE = 32, 8


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A model as predictions need it.

    Args:
        name: str, of the model.
        image_shape: (height, width, channels) of its images.
        preparation: str, see `zoo.photos.prepare`.
        batch_size: int, the most images that `compute` takes.
        compute: function from float32 images (batch, height, width, channels) in
            [-1, 1] to probabilities (batch, classes), numbers (batch, outputs), or None
            without either, and features (batch, size), or None unless they were asked
            for.
        class_names: tuple of str, of classes or numbers; empty without either.
        num_features: int, the size of the features, None unless they were asked for.
        notes: tuple of str, what users should know of the answers.
        digest: function without arguments to a str, which other weights and another
            precision change.
        problem_type: str, one of `zoo.head.PROBLEM_TYPES`.
        bits: int or None, of photos in files of 16 bits, see `zoo.photos.decode`.
    """

    name: str
    image_shape: tuple[int, int, int]
    preparation: str
    batch_size: int
    compute: Callable
    class_names: tuple[str, ...]
    num_features: int | None
    notes: tuple[str, ...]
    digest: Callable
    problem_type: str = ONE_CLASS
    bits: int | None = None


def load(
    source,
    *,
    image_size=None,
    central_crop=None,
    batch_size=None,
    features=False,
    engine="auto",
    precision="float32",
    trust=False,
):
    """Loads a model for predictions.

    Args:
        source: str: the path of an exported file, see
            `train.inference.exported_model.find`, or whatever
            `train.inference.loaded_model.load` takes.
        image_size: int, to which a Keras model is resized, and the images of an
            exported one for any size; by default its own.
        central_crop: bool, None for what the model was trained or saved with.
        batch_size: int, images at a time.
        features: bool, whether features are wanted.
        engine: str, see `keras_vit.Predictor`; an exported file has its own.
        precision: str, likewise.
        trust: bool, whether a SavedModel may have operations that ours do not have.

    Returns:
        `Classifier`.

    Raises:
        RunError: the model cannot be used, or has neither classes nor features.
    """
    path = exported_model.find(source)
    if path is not None:
        if (engine, precision) != ("auto", "float32"):
            raise RunError(
                f"The model {path} is exported for its own runtime: leave --engine and "
                "--precision out, or pass the model that it was exported from."
            )
        classifier = _of_export(path, image_size, batch_size, features, trust)
    else:
        classifier = _of_keras_model(
            source, image_size, batch_size, features, engine, precision
        )
    preparation = asked_for(central_crop, classifier.preparation)
    return dataclasses.replace(classifier, preparation=preparation)


def _of_export(path, image_size, batch_size, with_features, trust):
    model = exported_model.load(path, trust=trust)
    if image_size is not None:
        if model.size_step is None:
            raise RunError(
                f"The model {path} is exported for images of one size: leave "
                "--image_size out, or export it again with --image_size or --any_size."
            )
        if any(image_size % step for step in model.size_step):
            height, width = model.size_step
            raise RunError(
                f"The model {path} takes images whose sides are multiples of {height} "
                f"and {width}, got --image_size={image_size}: pass such a size."
            )
        shape = (image_size, image_size, model.image_shape[2])
        model = dataclasses.replace(model, image_shape=shape)
    is_features = model.output == "features"
    features = model.run if is_features else model.features
    if with_features and features is None:
        raise RunError(
            f"The model {path} gives classes, not features: export it with --features, "
            "as a SavedModel, or pass the model that it was exported from."
        )
    if is_features and not with_features:
        raise RunError(
            f"The model {path} gives features, not classes: pass --features=x.npz for "
            "them, or export it without --features."
        )
    problem_type = model.problem_type
    size = 0 if is_features else model.size
    names, notes = _named(model.class_names, size, problem_type)
    _check_count(path, names, model.activation, problem_type)
    is_logits = model.output == "logits"

    def compute(images):
        found = features(images) if with_features else None
        if is_features:
            return None, found
        outputs = model.run(images)
        if is_logits and model.activation == "sigmoid":
            outputs = sigmoid(outputs)
        elif is_logits:
            outputs = answers_of(outputs, problem_type)
        return outputs, found

    most = 1 if model.one_by_one else _EXPORT_BATCH_SIZE
    return Classifier(
        "/".join(path.resolve().parts[-2:]),
        model.image_shape,
        model.preparation,
        batch_size or most,
        compute,
        names,
        _length(features, model) if with_features else None,
        (*notes, *_note_on(model.activation, problem_type)),
        lambda: exported_model.digest_of(path),
        problem_type,
        model.bits,
    )


def _length(features, model):
    images = np.zeros((1, *model.image_shape), "float32")
    return features(images).shape[-1]


def _of_keras_model(source, image_size, batch_size, with_features, engine, precision):
    finding.find(source)  # before Keras is loaded
    import keras

    from keras_vit.structure import bits_of, preparation_of
    from train.common import runtimes
    from train.inference import loaded_model
    from train.inference.classes import classes_of
    from train.inference.model_writing import body_and_head

    loaded = loaded_model.load(source, image_size=image_size)
    shape = loaded_model.image_shape_of(loaded, channels=(1, 3))
    classes, model = classes_of(loaded), loaded.model
    problem_type, names = classes.problem_type, classes.names
    if not names and not with_features:
        raise RunError(f"{classes.why_none} Pass --features=x.npz for its features.")
    _check_count(loaded.name, names, classes.activation, problem_type)
    head = None
    if with_features:
        model, head = body_and_head(model)
        if names and head is None:
            raise RunError(
                f"Features are what the layer called head takes, and the model "
                f"{loaded.name} ends in the layer {model.layers[-1].name}: leave "
                "--features out, or pass a model that ends in its head."
            )
        if len(model.output_shape) != 2:
            raise RunError(
                f"The model {loaded.name} has features of shape "
                f"{model.output_shape[1:]} per image: pass one that pools them."
            )
    batch_size = batch_size or _BATCH_SIZE
    predictor = runtimes.predictor(model, batch_size, engine, precision)

    def compute(images):
        outputs = predictor(images)
        if not with_features:
            return answers(outputs), None
        if head is None or not names:
            return None, outputs
        return answers(keras.ops.convert_to_numpy(head(outputs))), outputs

    def answers(outputs):
        return classes.answers(np.asarray(outputs, "float32"))

    def digest():
        # As before there were others, in float32.
        other = "" if precision == "float32" else f" in {precision}"
        return f"{_digest(loaded.model)}{other}"

    no_names = classes.why_no_names
    return Classifier(
        loaded.name,
        shape,
        preparation_of(loaded.model),
        batch_size,
        compute,
        tuple(names),
        model.output_shape[-1] if with_features else None,
        (
            *((no_names,) if no_names else ()),
            *_note_on(classes.activation, problem_type),
        ),
        digest,
        problem_type,
        bits_of(loaded.model),
    )


def _named(names, count, problem_type):
    """Returns names of classes, numbers where they are unknown, and a note on that."""
    if names is not None or not count:
        return names or (), ()
    if problem_type == NUMBERS:
        return tuple(f"output {number}" for number in range(count)), ()
    note = f"the names of the classes are not known: {how_to_name(count)}"
    return tuple(f"class {number}" for number in range(count)), (note,)


def _check_count(model, names, activation, problem_type):
    if len(names) == 1 and activation != "sigmoid" and problem_type == ONE_CLASS:
        raise RunError(
            f"The model {model} has one class, {names[0]}, which every photo would be "
            "with 100%: pass a model of several, one that ends in a sigmoid, or one "
            "whose head or settings have another problem_type."
        )


def _note_on(activation, problem_type):
    if problem_type == NUMBERS:
        return ("the model answers with numbers, not with classes",)
    if problem_type == SEVERAL_CLASSES and activation == "linear":
        return ("each class has a probability of its own",)
    if activation != "sigmoid":
        return ()
    return ("the model ends in a sigmoid: each class has a probability of its own",)


def _digest(model):
    found = hashlib.blake2b(digest_size=16)
    for weight in model.get_weights():
        found.update(np.ascontiguousarray(weight).view("uint8").data)
    return found.hexdigest()
