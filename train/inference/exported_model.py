"""Exported files, each run by its own runtime; Keras is never imported.

TensorFlow is imported for a SavedModel alone. What the file says of its model, besides
the shapes, is in its metadata: the class names, how photos come to its size, and the
activation of the head. Files of earlier versions have the class names alone.
"""

import dataclasses
import importlib.metadata
import json
import pathlib
import zipfile
from collections.abc import Callable

import numpy as np

from train.common import packages
from train.common.errors import RunError, first_line
from train.inference import onnx_data, saved_operations, tflite_sizes
from train.inference.run_directory import RunDirectory, read_names
from zoo import limits
from zoo.files.opening import EXPORTS, SAVED_MODEL, two_kinds
from zoo.head import ONE_CLASS, PROBLEM_TYPES
from zoo.limits import check_image_size
from zoo.preparation import check_bits, is_preparation
from zoo.regular_files import expand_home, missing_remedy, read_text
from zoo.store import digest
from zoo.text import named

# In the zip archive that a TFLite file is as well. The facts are in `assets.extra` of a
# SavedModel, too, and the metadata of an ONNX file have their keys.
FACTS, LABELS = "keras_vit.json", "labels.txt"
_OUTPUTS = ("logits", "probabilities", "features")
_ACTIVATIONS = ("linear", "softmax", "sigmoid")


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """A model in the runtime of its format.

    Args:
        run: function from float32 images (batch, height, width, channels) in [-1, 1]
            to float32 outputs (batch, ...).
        version: str, of the runtime.
        image_shape: (height, width, channels); of a file for images of any size those
            that photos are brought to.
        output_shape: tuple, that of the outputs of some images, (None, classes).
        output: str, what the outputs are called: by our writers "logits",
            "probabilities" or "features".
        one_by_one: bool, whether it takes no batches, so that 8 images are 8 calls.
        class_names: tuple of str in the order of the outputs, None where unknown.
        activation: str, of the head: "linear", "softmax" or "sigmoid".
        preparation: str, see `zoo.photos.prepare`.
        problem_type: str, what the outputs answer, one of `zoo.head.PROBLEM_TYPES`.
        bits: int or None, of photos in files of 16 bits, see `zoo.photos.decode`.
        size_step: (height, width) that the sides of images are multiples of, None of a
            file for images of one size.
        features: function like `run` to the input of the head, None without one.
    """

    run: Callable
    version: str
    image_shape: tuple[int, ...]
    output_shape: tuple
    output: str
    one_by_one: bool = False
    class_names: tuple[str, ...] | None = None
    activation: str = "linear"
    preparation: str = "squash"
    problem_type: str = ONE_CLASS
    bits: int | None = None
    size_step: tuple[int, int] | None = None
    features: Callable | None = None

    @property
    def size(self):
        """The length of an output."""
        return self.output_shape[-1]


def find(source):
    """Returns the path of the exported file that is meant, None for other models.

    Args:
        source: str or path: of a `.tflite` or `.onnx` file, the folder of a SavedModel,
            or a folder that holds a single one of these, as `train.export` writes it.

    Raises:
        RunError: there is no such file, or the folder holds several, or the weights of
            a library as well.
    """
    path = expand_home(source)
    is_file = path.suffix in EXPORTS or path.name == SAVED_MODEL
    if "://" in str(source) and not path.exists():
        return None
    if is_file and not path.is_dir():
        if not path.is_file():
            raise RunError(f"There is no file {path}: {missing_remedy(path)}")
        return _program(path)
    if not path.is_dir():
        return None
    held = RunDirectory(path).models()
    if held.run or held.card:
        return None
    if held.weights and held.exports:
        raise RunError(str(two_kinds(path, held.weights, held.exports[0])))
    if held.weights:
        return None
    found = [path / name for name in held.exports]
    for folder in (path, path / "saved_model"):
        # TensorFlow Serving loads the folder with the highest number.
        versions = [
            one.parent
            for one in folder.glob(f"*/{SAVED_MODEL}")
            if one.parent.name.isdecimal()
        ]
        found += sorted(versions, key=lambda version: int(version.name))[-1:]
    if len(found) > 1:
        names = named(sorted(one.relative_to(path).as_posix() for one in found))
        raise RunError(f"{path} has several exports, {names}: give one of them.")
    return _program(found[0]) if found else None


def _program(path):
    """Returns the path that `load` takes: of a SavedModel, its folder."""
    return path.parent if path.name == SAVED_MODEL else path


def load(path, threads=None, trust=False):
    """Loads an exported file that our writers have written.

    Args:
        path: what `find` returns.
        threads: int, of the runtime; by default what it chooses itself.
        trust: bool, whether a SavedModel may have operations that ours do not have,
            which may read and write files.

    Returns:
        `ExportedModel`.

    Raises:
        RunError: the file is damaged or of another kind, or its runtime is missing.
    """
    loader, needed = _LOADERS[path.suffix if path.is_file() else ""]
    packages.need(f"The model {path}", (needed,), extra="export")
    if path.is_dir() and not trust:
        saved_operations.check(path)
    try:
        model = loader(str(path), threads)
        _check(model, path)
    except RunError:
        raise
    # The runtimes raise errors of any kind at damaged files.
    except Exception as error:
        raise RunError(
            f"The model {path} cannot be used ({type(error).__name__}: "
            f"{first_line(error)}): copy or export it again."
        ) from error
    model = dataclasses.replace(
        model,
        run=_explained(model.run, path),
        features=model.features and _explained(model.features, path),
    )
    names = RunDirectory(path.parent)
    if model.class_names is None and names.class_names.is_file():
        model = dataclasses.replace(model, class_names=names.read_class_names())
    if model.output == "features":
        return dataclasses.replace(model, class_names=None)
    if model.class_names is not None and len(model.class_names) != model.size:
        raise RunError(
            f"The model {path} has {model.size} classes and {len(model.class_names)} "
            "class names: export it again."
        )
    return model


def _explained(run, path):
    """Returns a function to outputs whose errors name the file."""

    def explained(images):
        try:
            return run(images)
        except (RunError, MemoryError):
            raise
        # The runtimes raise errors of any kind, of graphs that contradict themselves.
        except Exception as error:
            if "ResourceExhausted" in type(error).__name__:
                raise
            raise RunError(
                f"The model {path} cannot compute images of shape {images.shape[1:]}, "
                f"which it says it takes ({first_line(error)}): export it again."
            ) from error

    return explained


def files_of(path):
    """Returns the paths of the files that make up an export, sorted."""
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.is_file())
    if path.suffix != ".onnx":
        return [path]
    return [path, *onnx_data.files(path)]


def digest_of(path):
    """Returns a str that two exports share if all their bytes are the same."""
    return "-".join(digest(one, "sha256")[:16] for one in files_of(path))


def saved_model(path, threads=None):
    """Loads a SavedModel."""
    tensorflow = tensorflow_on(threads)
    loaded = tensorflow.saved_model.load(path)

    def function(name):
        signature = loaded.signatures[name]
        [argument] = signature.structured_input_signature[1]

        def run(images):
            given = {argument: tensorflow.constant(images)}
            [answers] = signature(**given).values()
            return answers.numpy()

        run.model = loaded  # the signature alone does not keep it alive
        return run

    signature = loaded.signatures["serving_default"]
    [source] = signature.structured_input_signature[1].values()
    [(output, target)] = signature.structured_outputs.items()
    has_features = output != "features" and "features" in loaded.signatures
    names = pathlib.Path(path, "assets", "class_names.txt")
    facts = _facts(pathlib.Path(path, "assets.extra", FACTS))
    return ExportedModel(
        function("serving_default"),
        f"TensorFlow {tensorflow.__version__}",
        (*facts.pop("image_size", source.shape[1:3]), *source.shape[3:]),
        tuple(target.shape),
        output,
        class_names=read_names(names) if names.exists() else None,
        features=function("features") if has_features else None,
        **facts,
    )


def tflite(path, threads=None):
    """Loads a TFLite file; one of a fixed batch size gets the images one by one."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=threads)
    # Before memory is taken for tensors of the sizes that the file declares.
    tflite_sizes.check_sizes(path)
    for one in interpreter.get_input_details():
        check_image_size(int(side) for side in one["shape"][1:3])
    interpreter.allocate_tensors()
    [source] = interpreter.get_input_details()
    [target] = interpreter.get_output_details()
    one_by_one = int(source["shape_signature"][0]) != -1

    def of_batch(images):
        if tuple(interpreter.get_input_details()[0]["shape"]) != images.shape:
            interpreter.resize_tensor_input(source["index"], images.shape)
            interpreter.allocate_tensors()
        if source["dtype"] == np.uint8:
            scale, zero = source["quantization"]
            images = np.clip(np.round(images / scale) + zero, 0, 255).astype("uint8")
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        answers = interpreter.get_tensor(target["index"])
        if target["dtype"] == np.uint8:
            scale, zero = map(np.float32, target["quantization"])
            answers = (answers.astype("float32") - zero) * scale
        return answers

    def run(images):
        if not one_by_one:
            return of_batch(images)
        return np.concatenate([of_batch(image[None]) for image in images])

    [signature] = interpreter.get_signature_list().values() or [{"outputs": [""]}]
    names, facts = None, {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if LABELS in archive.namelist():
                names = _lines(_unpacked(archive, LABELS, limits.TEXT_BYTES))
            if FACTS in archive.namelist():
                facts = _known(json.loads(_unpacked(archive, FACTS, limits.NOTE_BYTES)))
    version = importlib.metadata.version("ai-edge-litert")
    return ExportedModel(
        run,
        f"LiteRT {version}",
        tuple(map(int, source["shape"][1:])),
        tuple(map(int, target["shape"])),
        signature["outputs"][0],
        one_by_one,
        names,
        **facts,
    )


def onnx(path, threads=None):
    """Loads an ONNX file."""
    import onnxruntime

    onnx_data.files(path)  # refuses those outside of its folder
    onnx_data.check_sizes(path)
    # On some systems it writes files of what it is used for.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    [source], [target] = session.get_inputs(), session.get_outputs()
    metadata = session.get_modelmeta().custom_metadata_map

    def run(images):
        [answers] = session.run(None, {source.name: images})
        return answers

    names, facts = metadata.get("class_names"), _known(metadata)
    return ExportedModel(
        run,
        f"ONNX Runtime {onnxruntime.__version__}",
        (*facts.pop("image_size", source.shape[1:3]), *source.shape[3:]),
        tuple(target.shape),
        target.name,
        class_names=None if names is None else _texts(json.loads(names)),
        **facts,
    )


# The function that loads files of each ending, folders having none, and its package.
_LOADERS = {
    ".tflite": (tflite, "ai_edge_litert"),
    ".onnx": (onnx, "onnxruntime"),
    "": (saved_model, "tensorflow"),
}


def tensorflow_on(threads):
    """Imports TensorFlow, and sets its threads unless they are None."""
    import tensorflow

    if threads is not None:
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(threads)
    return tensorflow


def _lines(content):
    # An editor may drop the last line break, or add a byte order mark.
    return tuple(content.decode("utf-8-sig").removesuffix("\n").split("\n"))


def _facts(path):
    """Returns the facts in a JSON file, none of earlier versions."""
    if not path.exists():
        return {}
    return _known(json.loads(read_text(path, limits.NOTE_BYTES)))


def _unpacked(archive, name, most):
    """Returns the bytes of a text in a zip archive, of at most `most`."""
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise ValueError(f"its {name} has more than {most:,} bytes")
    return content


def _texts(names):
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ValueError("its class_names are not a list of texts")
    return tuple(names)


def _known(facts):
    known = ("activation", "preparation", "problem_type")
    if not isinstance(facts, dict) or not all(
        isinstance(facts.get(key, ""), str)
        for key in (*known, "bits", "image_size", "size_step")
    ):
        raise ValueError("its facts are not a table of texts")
    found = {key: facts[key] for key in known if key in facts}
    if "bits" in facts:
        found["bits"] = int(facts["bits"])
        check_bits(found["bits"])
    for key in {"image_size", "size_step"} & facts.keys():
        height, width = map(int, facts[key].split(","))
        found[key] = check_image_size((height, width))
    return found


def _check(model, path):
    """Refuses files of others, whose images may have another range."""
    if len(model.output_shape) != 2:
        raise RunError(
            f"The model {path} gives outputs of shape {model.output_shape[1:]} for an "
            "image, not one number per class: export one that pools its tokens."
        )
    shape = model.image_shape
    if all(isinstance(side, int) for side in shape[:2]):
        check_image_size(shape[:2])
    if isinstance(model.size, int) and model.size > limits.CLASSES:
        raise ValueError(f"it has {model.size:,} classes")
    is_ours = (
        model.output in _OUTPUTS
        and len(shape) == 3
        and all(isinstance(side, int) for side in (*shape, model.size))
        and shape[2] in (1, 3)
        and model.activation in _ACTIVATIONS
        and model.problem_type in PROBLEM_TYPES
        and is_preparation(model.preparation)
    )
    if not is_ours:
        raise RunError(
            f"The model {path} is not as keras-vit export writes it (images {shape}, "
            f"output {model.output!r}, {model.activation!r}, {model.preparation!r}, "
            f"{model.problem_type!r}): export it again, or call its own runtime."
        )
