"""Writes the model of a finished run into a registry, or pushes it to the hub."""

import os
import pathlib
import shutil

import filelock
import numpy as np
import tensorflow as tf

import keras_vit
import zoo
from keras_vit.structure import bits_of, kind_of_pooling
from keras_vit.weights import model_arrays
from train.common.errors import RunError
from train.common.files import make_folder, refuse_others, whole_folder, write_json
from train.data.registry import kind_of, short_name
from train.models.averaging import members
from train.models.exports.saved_model import write_saved_model
from train.models.keras_files import load_model
from train.models.run_directory import RunDirectory
from train.reports.model_page import PICTURES, model_page
from zoo.catalog import registry
from zoo.common.regular_files import file_lock
from zoo.common.safe_text import brief, is_safe
from zoo.containers.opening import EXTENSIONS
from zoo.libraries.writing import UNSEEN
from zoo.network import FAMILIES, RELEASED, RESIZING, SIZES
from zoo.store import digest

# The SavedModel's logits may differ by this, relative to the largest.
_TOLERANCE = 1e-4
_LOCK_SECONDS = 60
# These count images of the report, and are not metrics of the model.
_COUNTS = ("test_examples", "test_suspected_label_errors")


def publish(
    run_dir: str | os.PathLike,
    to: str | os.PathLike,
    *,
    name: str | None = None,
    licence: str = "apache-2.0",
    replace: bool = False,
) -> pathlib.Path:
    """Writes the model of a finished run into a registry.

    The arguments are those of `python -m train.publish`, with `licence` its --license.

    Returns:
        `pathlib.Path` of the model's folder.

    Raises:
        RunError: the run is not finished, or its files are damaged; the name is taken
            or not valid; the folder cannot be written. A model that was there stays.

    Example:
        >>> publish("runs/digits", "registry")  # doctest: +SKIP
        PosixPath('registry/digits')
    """
    if "://" in os.fspath(to):
        raise RunError(
            f"Cannot publish to {to}: pass a folder, which a server can then serve."
        )
    run = RunDirectory(run_dir)
    run.require(run.results, run.model, run.class_names)
    name = run.path.resolve().name if name is None else name
    if not registry.is_name(name):
        raise RunError(
            f"{name!r} is not a model name: pass --name with letters, digits, '.', "
            "'_' and '-' only, starting with a letter or digit."
        )
    report, class_names, trained = _read_run(run)
    to = make_folder(to, "--to")
    folder = to / name
    try:
        lock = file_lock(to / ".lock").acquire(timeout=_LOCK_SECONDS)
    except filelock.Timeout as error:
        raise RunError(
            f"Another process has been writing to {to} for {_LOCK_SECONDS} seconds: "
            "wait for it, or stop it."
        ) from error
    with lock:
        if folder.exists() and not replace:
            raise RunError(
                f"{to} holds a model called {name!r} already: pass another --name, or "
                "--replace."
            )
        own = [registry.CARD, *registry.WEIGHTS, "README.md", "saved_model", *PICTURES]
        own += [run.model.name, run.class_names.name, run.results.name]
        refuse_others(folder, own, "a published model", "pass another --name")
        with whole_folder(folder) as temporary:
            _write_model(
                temporary,
                run,
                trained,
                report=report,
                name=name,
                licence=licence,
                class_names=class_names,
            )
        registry.write_index(to)
    return folder


def push(folder: str | os.PathLike, repository: str, *, private: bool = False) -> str:
    """Uploads a published model to the Hugging Face hub; returns its URL.

    `folder` is the model's, `repository` an `"org/name"`, which is private if it is new
    and `private`. Raises a `RunError` where there is no token or no network, or the hub
    refuses.
    """
    try:
        return zoo.store.hub.push(folder, repository, private=private)
    except zoo.StoreError as error:
        raise RunError(
            f"{error} The model is complete in {folder}: to push it, run the command "
            "again with --replace."
        ) from error


def _read_run(run):
    """Returns report, class names and model of a finished run, all checked."""
    report = run.read_results()
    class_names = run.read_class_names()
    for name in class_names:
        if not is_safe(name):
            raise RunError(
                f"The class {brief(name)} cannot be published: its name has control "
                f"characters. Rename it in {run.class_names}."
            )
    model = load_model(run.model)
    if parts := members(model):
        raise RunError(
            f"{run.model} averages {len(parts)} networks, and a published model is "
            "one: publish a run of finetune --single."
        )
    try:
        model_arrays.released_variables(model)
    except ValueError as error:
        raise RunError(f"{run.model} cannot be published: {error}") from error
    if model.output_shape[-1] != len(class_names):
        raise RunError(
            f"{run.class_names} names {len(class_names)} classes and {run.model} has "
            f"{model.output_shape[-1]}: they are not of one run."
        )
    return report, class_names, model


def _write_model(folder, run, trained, *, report, name, licence, class_names):
    weights = registry.WEIGHTS[0]
    plain = zoo.ViTConfig(**RELEASED, **FAMILIES)
    stated = model_arrays.stated(trained).with_defaults(plain)
    # A .npz shows these by its arrays, or is resized as released.
    unseen = {*UNSEEN, *RESIZING, "relative_position_bias"}
    other = not unseen.isdisjoint(stated.differences(plain))
    other |= kind_of_pooling(trained) not in ("token", "gap")
    other |= bits_of(trained) is not None
    if other:
        # The metadata of .safetensors describe the computation and the bits.
        weights = registry.WEIGHTS[1]
    keras_vit.save_released_weights(trained, folder / weights)
    model = _load_and_compare(folder / weights, trained)
    write_saved_model(model, folder / "saved_model", class_names=class_names)
    _check_saved_model(folder / "saved_model", model)
    report = _without_places(report)
    config = report["config"]
    architecture, variant, base = config["model"], None, config.get("weights")
    if isinstance(architecture, str):
        variant = architecture if architecture in zoo.VARIANTS else None
        known = zoo.VARIANTS.get(variant) or zoo.read(folder / weights).config
        architecture = known.sizes
    try:
        card = zoo.PublishedModel(
            name=name,
            architecture={k: v for k, v in architecture.items() if k in SIZES},
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
                if key.startswith("test_") and key not in _COUNTS
            },
            base=base,
            variant=variant,
            licence=licence,
        )
    except ValueError as error:
        raise RunError(f"{run.path} cannot be published: {error}.") from error
    pictures = [name for name in PICTURES if (run.path / name).is_file()]
    for name in (run.model.name, run.class_names.name, *pictures):
        shutil.copyfile(run.path / name, folder / name)
    write_json(folder / run.results.name, report)
    page = model_page(card, report, pictures)
    (folder / "README.md").write_text(page, encoding="utf-8")
    (folder / registry.CARD).write_text(card.to_json(), encoding="utf-8")


def _without_places(report):
    """Returns a report without the command lines and the folders of this machine."""
    config = dict(report["config"])
    if kind_of(config["dataset"]).is_own:
        config["dataset"] = short_name(config["dataset"])
    for name in ("model", "weights"):
        if isinstance(config.get(name), str) and _is_file(config[name]):
            config[name] = pathlib.Path(config[name]).name
    typed = ("command", "try_next")
    kept = {name: value for name, value in report.items() if name not in typed}
    return kept | {"config": config}


def _is_file(weights):
    # The file may be gone by now.
    path = os.path.expanduser(weights)
    is_named_so = weights.endswith((*EXTENSIONS, ".keras"))
    is_file = is_named_so or os.path.isabs(path) or os.path.exists(path)
    return is_file and "://" not in weights


def _load_and_compare(path, trained):
    """Returns the model as others will load it, checked bit for bit."""
    model = keras_vit.load_model(path, dtype="float32")
    loaded = model_arrays.released_variables(model)
    for key, (variable, _) in model_arrays.released_variables(trained).items():
        if not np.array_equal(loaded[key][0].numpy(), variable.numpy()):
            raise RunError(
                f"{key} is not the same in {path.name} as in the trained model: please "
                "report this."
            )
    return model


def _check_saved_model(folder, model):
    images = np.random.default_rng(0).random((2, *model.input_shape[1:]), "float32")
    expected = model(2 * images - 1).numpy()
    error = np.abs(tf.saved_model.load(str(folder))(images) - expected).max()
    if not error <= _TOLERANCE * max(np.abs(expected).max(), 1.0):
        raise RunError(
            f"The SavedModel's logits are {error} from those of the model: please "
            "report this."
        )
