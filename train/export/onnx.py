"""Writer of ONNX files."""

import json
import os
import pathlib
from collections.abc import Sequence

import keras

from keras_vit.runtimes.onnx import OPSET, config_of, write
from train.common import packages
from train.common.files import MEND, explained, scratch_folder, whole_file
from train.models.exports.writing import check, facts_of, has_head
from zoo.common.regular_files import expand_home

_PRECISIONS = ("float32", "float16")


def write_onnx(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    precision: str = "float32",
    class_names: Sequence[str] | None = None,
) -> None:
    """Writes a model as an ONNX file of opset 20, with standard operators only.

    ONNX Runtime 1.17 and later run it, on any device. Its input `images` is float32
    (batch, height, width, channels) in [-1, 1], of any batch size and of the model's
    height and width; of a model for images of any size these are open as well. Its
    output is float32: `logits` (batch, classes), `probabilities` where the head has an
    activation, or `features` of a model without head.

    In float16 the file is half as large, and a tenth slower on ONNX Runtime's CPU
    device. Input and output, the statistics of norms, the softmax, and means over
    tokens or positions stay float32.

    The metadata are `opset`, `precision`, `input_range`, the head's `activation`, the
    `preparation` of photos (see `zoo.photos.prepare`), their `bits` where they are
    known, the `problem_type` of a head that does not answer with one class of several
    and, where there are any, `class_names`, a JSON list. Weights of 2 GB and more are
    in a second file with `.data` appended to the name; both must stay together under
    their names.

    Args:
        model: a functional `keras.Model` of `keras_vit`. Mixed precision is written as
            float32, and int8 weights as the floats that they represent.
        path: str or path of the file, in an existing folder.
        precision: `"float32"` or `"float16"`.
        class_names: None, or a sequence of str in the order of the logits.

    Raises:
        ValueError: the model has a layer of another library, an argument is unknown or
            does not fit the model, or a weight is too large for float16.
        RunError: the package onnx is missing, or the file cannot be written.

    Source:
        The operators: https://onnx.ai/onnx/operators.

    Example:
        >>> config = keras_vit.ViTConfig(hidden_size=24, num_layers=1, num_heads=3,
        ...                              mlp_dim=40, patch_size=16)
        >>> model = keras_vit.VisionTransformer(config, image_size=32, classes=2)
        >>> write_onnx(model, "model.onnx", class_names=["cat", "dog"])
    """
    if precision not in _PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(_PRECISIONS)}, got {precision!r}."
        )
    check(model, class_names)
    config_of(model)  # Refuses models that cannot be written.
    packages.need("Writing ONNX", ("onnx",), extra="export")
    import onnx

    path = expand_home(path)
    metadata = {"opset": str(OPSET), "precision": precision, "input_range": "[-1, 1]"}
    metadata |= facts_of(model)
    output = "logits" if metadata["activation"] == "linear" else "probabilities"
    if class_names is not None:
        metadata["class_names"] = json.dumps(list(class_names), ensure_ascii=False)
    # Beside the file: there is room, and what is whole need not be copied.
    with (
        explained(f"write {path}", f"{MEND}, or pass another --out"),
        scratch_folder("onnx", path.parent) as folder,
    ):
        written = write(
            model,
            pathlib.Path(folder, path.name),
            output=output if has_head(model) else "features",
            precision=precision,
            metadata=metadata,
        )
        onnx.checker.check_model(str(written), full_check=True)
        # Write the weights first: the other file refers to them.
        for name in (f"{path.name}.data", path.name):
            if (file := written.with_name(name)).exists():
                with whole_file(path.with_name(name), "--out") as temporary:
                    file.replace(temporary)
