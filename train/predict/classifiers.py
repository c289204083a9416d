"""One interface to Keras models and to exported files, which need no Keras."""

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np

from train.common.errors import RunError
from train.models import finding
from train.models.exports import exported_model
from train.models.run_directory import how_to_name
from zoo.network import pair
from zoo.network.head import NUMBERS, SEVERAL_CLASSES, Answers, numbered_names
from zoo.network.preparation import asked_for

_BATCH_SIZE, _EXPORT_BATCH_SIZE = 32, 8


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A model as predictions need it.

    `compute` takes at most `batch_size` images in [-1, 1] of `image_shape`, float32. It
    returns outputs (batch, outputs), None without classes and numbers, and features
    (batch, num_features), None unless they were asked for. `notes` are what users
    should know of the answers; `digest()` is a str that other weights and another
    precision change. `preparation` is of `zoo.photos.prepare`, `bits` of
    `zoo.photos.decode`. `expect` takes how many photos will follow, or None.
    """

    name: str
    image_shape: tuple[int, int, int]
    preparation: str
    batch_size: int
    compute: Callable
    answers: Answers
    num_features: int | None
    notes: tuple[str, ...]
    digest: Callable
    bits: int | None = None
    expect: Callable[[int | None], None] = lambda photos: None


def load(
    source: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    central_crop: bool | None = None,
    batch_size: int | None = None,
    features: bool = False,
    engine: str = "auto",
    precision: str = "float32",
    trust: bool = False,
) -> Classifier:
    """Loads a model for predictions.

    The arguments are those of `train.predict.prediction.predict`, of which `source` is
    the model, and `features` whether they are asked for.

    Raises a `RunError` where it cannot be used, or has neither classes nor features.
    """
    place = finding.find(source, exports=True)
    if place.export is None:
        classifier = _of_keras_model(
            place, image_size, batch_size, features, engine, precision
        )
    elif (engine, precision) == ("auto", "float32"):
        classifier = _of_export(place.export, image_size, batch_size, features, trust)
    else:
        raise RunError(
            f"The model {place.export} is exported for its own runtime: leave --engine "
            "and --precision out, or pass the model that it was exported from."
        )
    preparation = asked_for(central_crop, classifier.preparation)
    return dataclasses.replace(classifier, preparation=preparation)


def _of_export(path, image_size, batch_size, with_features, trust):
    model = exported_model.load(path, trust=trust)
    if image_size is not None:
        model = _at_image_size(model, path, image_size)
    is_features = model.output == "features"
    features = model.run if is_features else model.features
    if with_features and features is None:
        raise RunError(
            f"The model {path} gives classes, not the features that --features and "
            "--ask need: pass the model that it was exported from or a SavedModel, "
            "which give both, or for features alone a file of keras-vit export "
            "--features."
        )
    if is_features and not with_features:
        raise RunError(
            f"The model {path} gives features, not classes: pass --features=NAME.npz "
            "for them, or a folder where --out is one, or export it without --features."
        )
    names, problem_type = model.class_names, model.problem_type
    if names is None:
        names = numbered_names(0 if is_features else model.size, problem_type)
    are_logits, thresholds = model.output == "logits", model.thresholds
    answers = Answers(names, problem_type, model.activation, are_logits, thresholds)
    notes = _notes_on(path, answers)
    if names and model.class_names is None and problem_type != NUMBERS:
        how = how_to_name(len(names))
        notes = (f"the names of the classes are not known: {how}", *notes)

    def compute(images: np.ndarray) -> tuple:
        vectors = features(images) if with_features else None
        return None if is_features else model.run(images), vectors

    num_features = None
    if with_features:
        images = np.zeros((1, *model.image_shape), "float32")
        num_features = features(images).shape[-1]
    most = 1 if model.one_by_one else _EXPORT_BATCH_SIZE
    return Classifier(
        name="/".join(path.resolve().parts[-2:]),
        image_shape=model.image_shape,
        preparation=model.preparation,
        batch_size=batch_size or most,
        compute=compute,
        answers=answers,
        num_features=num_features,
        notes=notes,
        digest=lambda: exported_model.digest_of(path),
        bits=model.bits,
    )


def _at_image_size(model, path, image_size):
    """Returns an exported model for any size with that of its images."""
    if model.size_step is None:
        raise RunError(
            f"The model {path} is exported for images of one size: leave --image_size "
            "out, or export it again with --image_size or --any_size."
        )
    size, (height, width) = pair(image_size, "image_size"), model.size_step
    if size[0] % height or size[1] % width:
        raise RunError(
            f"The model {path} takes images whose sides are multiples of {height} and "
            f"{width}, got --image_size={image_size}: pass such a size."
        )
    return dataclasses.replace(model, image_shape=(*size, model.image_shape[2]))


def _of_keras_model(place, image_size, batch_size, with_features, engine, precision):
    import keras

    from keras_vit.structure import bits_of, preparation_of
    from train.common import predictors
    from train.models import loaded_model
    from train.models.classes import classes_of
    from train.models.exports.writing import body_and_head

    loaded = loaded_model.load(place, image_size=image_size)
    shape = loaded_model.image_shape_of(loaded, channels=(1, 3))
    classes, model = classes_of(loaded), loaded.model
    names, why_no_names = classes.names, classes.why_no_names
    if not names and not with_features:
        raise RunError(f"{classes.why_none} Pass --features=NAME.npz for its features.")
    notes = _notes_on(loaded.name, classes)
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
    predictor = predictors.predictor(model, batch_size, engine, precision)

    def compute(images: np.ndarray) -> tuple:
        outputs = predictor(images)
        if not with_features:
            return np.asarray(outputs, "float32"), None
        if head is None or not names:
            return None, outputs
        return keras.ops.convert_to_numpy(head(outputs)).astype("float32"), outputs

    def digest() -> str:
        other = "" if precision == "float32" else f" in {precision}"
        return f"{_digest(loaded.model)}{other}"

    return Classifier(
        name=loaded.name,
        image_shape=shape,
        preparation=preparation_of(loaded.model),
        batch_size=batch_size,
        compute=compute,
        answers=classes,
        num_features=model.output_shape[-1] if with_features else None,
        notes=((why_no_names,) if why_no_names else ()) + notes,
        digest=digest,
        bits=bits_of(loaded.model),
        expect=predictor.expect,
    )


def _notes_on(model, answers):
    """Returns what users should know of answers; refuses a model of one class."""
    try:
        answers.check(model)
    except ValueError as error:
        raise RunError(str(error)) from error
    if answers.problem_type == NUMBERS:
        return ("the model answers with numbers, not with classes",)
    if answers.problem_type == SEVERAL_CLASSES and answers.activation == "linear":
        return ("each class has a probability of its own",)
    if answers.activation != "sigmoid":
        return ()
    return ("the model ends in a sigmoid: each class has a probability of its own",)


def _digest(model):
    digest = hashlib.blake2b(digest_size=16)
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).view("uint8").data)
    return digest.hexdigest()
