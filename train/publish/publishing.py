"""A finished run as a model that others find, load and read about."""

import json
import os
import pathlib
import shutil

import filelock
import keras
import numpy as np
import tensorflow as tf

import keras_vit
import zoo
from keras_vit.weights import computed, released_variables, saved_variables
from train.common.errors import RunError
from train.common.files import make_folder, whole_file, whole_folder
from train.data.registry import short_name
from train.inference.keras_files import load_model
from train.inference.run_directory import RunDirectory
from train.inference.saved_model import write_saved_model
from train.reports.model_page import PICTURES, model_page
from zoo.catalog import registry
from zoo.network import SIZES, Semantics
from zoo.store import digest
from zoo.text import brief, is_safe

# Between what the SavedModel and the model compute, of the largest logit.
_TOLERANCE = 1e-4
_LOCK_SECONDS = 60


def publish(run_dir, to, *, name=None, licence="apache-2.0", replace=False):
    """Writes the model of a finished run into a registry.

    Args:
        run_dir: path of the run's directory.
        to: path of the registry, a folder; made if missing.
        name: str, the model's name there; by default that of the run's directory.
        licence: str, as the Hugging Face hub writes it.
        replace: bool, whether a model of that name may be replaced.

    Returns:
        `pathlib.Path` of the model's folder.

    Raises:
        RunError: the run is not finished, or its files are damaged; the name is taken
            or is none; the folder cannot be written. A model that was there stays.

    Example:

    >>> publish("runs/digits", "registry")  # doctest: +SKIP
    PosixPath('registry/digits')
    """
    if "://" in os.fspath(to):
        raise RunError(
            f"Cannot publish to {to}: pass a folder, which a server can then serve."
        )
    run = RunDirectory(run_dir)
    if not run.path.is_dir():
        raise RunError(f"There is no run directory {run.path}: check the path.")
    name = run.path.resolve().name if name is None else name
    if not registry.is_name(name):
        raise RunError(
            f"{name!r} is no name for a model: pass --name with letters, digits, '.', "
            "'_' and '-' only, which begins with a letter or digit."
        )
    report, class_names, trained = _finished(run)
    to = make_folder(to, "--to")
    folder = to / name
    with _alone(to):
        if folder.exists() and not replace:
            raise RunError(
                f"{to} holds a model called {name!r} already: pass another --name, or "
                "--replace."
            )
        if folder.exists() and not (folder / registry.CARD).is_file():
            raise RunError(f"{folder} is in the way and is no published model.")
        with whole_folder(folder) as temporary:
            _fill(temporary, run, name, licence, report, class_names, trained)
        registry.write_index(to)
    return folder


def push(folder, repository, *, private=False):
    """Puts a published model on the Hugging Face hub.

    Args:
        folder: path of the model's folder.
        repository: str, `"org/name"`.
        private: bool, whether a new repository is private.

    Returns:
        str, its URL.

    Raises:
        RunError: no token, no network, or the hub refuses.
    """
    try:
        return zoo.store.hub.push(folder, repository, private=private)
    except zoo.StoreError as error:
        raise RunError(
            f"{error} The model is whole in {folder}: to push it, give the command "
            "again with --replace."
        ) from error


def _finished(run):
    """Returns what a run left: its report, class names and model."""
    run.require(run.results, run.class_names, run.model)
    try:
        report = json.loads(run.results.read_text(encoding="utf-8"))
        config = report["config"]
        report["test_accuracy"], report["test_examples"], report["per_class"]
        config["dataset"], config["model"], config["weights"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{run.results} is damaged ({error!r}): run again.") from error
    class_names = run.read_class_names()
    for name in class_names:
        if not is_safe(name):
            raise RunError(
                f"The class {brief(name)} cannot be published, its name has control "
                f"characters: rename it in {run.class_names}."
            )
    model = load_model(run.model)
    try:
        saved_variables(model)
    except (ValueError, OSError, KeyError) as error:
        raise RunError(f"{run.model} cannot be read ({error}): run again.") from error
    if model.output_shape[-1] != len(class_names):
        raise RunError(
            f"{run.class_names} names {len(class_names)} classes and {run.model} tells "
            f"{model.output_shape[-1]} apart: they are not of one run."
        )
    return report, class_names, model


def _alone(to):
    """Lets one process at a time write to a registry."""
    try:
        return filelock.FileLock(to / ".lock").acquire(timeout=_LOCK_SECONDS)
    except filelock.Timeout as error:
        raise RunError(
            f"Another process has been writing to {to} for {_LOCK_SECONDS} seconds: "
            "wait for it, or end it."
        ) from error


def _fill(folder, run, name, licence, report, class_names, trained):
    weights = registry.WEIGHTS[0]
    if Semantics(**computed(trained)) != Semantics():
        weights = registry.WEIGHTS[1]  # which says what the model computes
    keras_vit.save_released_weights(trained, folder / weights)
    model = _loaded(folder / weights, trained)
    write_saved_model(model, folder / "saved_model", class_names=class_names)
    _check_saved_model(folder / "saved_model", model)
    config = report["config"]
    card = _card(
        run,
        name=name,
        architecture=_architecture(config["model"]),
        image_size=model.input_shape[1:3],
        channels=model.input_shape[3],
        classes=len(class_names),
        class_names=class_names,
        parameters=model.count_params(),
        weights=weights,
        file_size=(folder / weights).stat().st_size,
        sha256=digest(folder / weights, "sha256"),
        data_set=short_name(config["dataset"]),
        metrics={
            key: report[key]
            for key in sorted(report)
            if key.startswith("test_") and key != "test_examples"
        },
        base=_base(config["weights"]),
        variant=config["model"] if isinstance(config["model"], str) else None,
        licence=licence,
    )
    pictures = [name for name in PICTURES if (run.path / name).is_file()]
    for kept in (run.model, run.class_names, run.results):
        shutil.copyfile(kept, folder / kept.name)
    for picture in pictures:
        shutil.copyfile(run.path / picture, folder / picture)
    for file, text in (
        ("README.md", model_page(card, report, pictures)),
        (registry.CARD, card.to_json()),
    ):
        with whole_file(folder / file) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _card(run, **fields):
    try:
        return zoo.PublishedModel(**fields)
    except ValueError as error:
        raise RunError(f"{run.path} cannot be published: {error}.") from error


def _loaded(path, trained):
    """Returns the model as others will load it, which must have the same variables."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        model = keras_vit.load_model(path)
    finally:
        keras.config.set_dtype_policy(policy)
    theirs = released_variables(model)
    for key, (variable, _) in released_variables(trained).items():
        if not np.array_equal(theirs[key][0].numpy(), variable.numpy()):
            raise RunError(
                f"{key} is not the same in {path.name} as in the trained model: please "
                "report this."
            )
    return model


def _check_saved_model(folder, model):
    images = np.random.default_rng(0).random((2, *model.input_shape[1:]), "float32")
    expected = model(2 * images - 1).numpy()
    found = tf.saved_model.load(str(folder))(images).numpy()
    error = np.abs(found - expected).max()
    if not error <= _TOLERANCE * max(np.abs(expected).max(), 1.0):
        raise RunError(
            f"The SavedModel's logits are {error} from those of the model: please "
            "report this."
        )


def _architecture(model):
    """Returns the sizes of the recipe's model."""
    if isinstance(model, str):
        return zoo.ARCHITECTURES[model].sizes
    return {name: value for name, value in model.items() if name in SIZES}


def _base(weights):
    """Returns the name of the weights, of a local file no more than its own."""
    if weights is not None and os.path.exists(weights):
        return pathlib.Path(weights).name
    return weights
