"""The standard metadata of a TFLite file: its input, its output and its class names.

No required package has the generated classes of its schema, so tables are dicts of the
schema's field numbers here, and integers have the type of their field.
"""

import json
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import flatbuffers
import keras
import numpy as np

from train.models.exports.description import FACTS, LABELS

_NAME = b"TFLITE_METADATA"
# Members of the schema's unions and enumerations.
_FEATURE_PROPERTIES, _IMAGE_PROPERTIES = np.uint8(1), np.uint8(2)
_RGB, _GRAYSCALE = np.uint8(1), np.uint8(2)
_NORMALIZATION_OPTIONS = np.uint8(1)
_TENSOR_AXIS_LABELS = np.uint8(2)


def add_metadata(
    content: bytes,
    model: keras.Model,
    precision: str,
    kinds: dict[str, int],
    output: str,
    labels: bool,
) -> bytearray:
    """Returns the bytes of a TFLite file with metadata, earlier ones replaced.

    `kinds` has the number of products of each kind; `labels` says whether
    `append_files` will append class names.

    Source:
        https://ai.google.dev/edge/litert/conversion/tensorflow/metadata and
        metadata_schema.fbs there.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    height, width, channels = model.input_shape[1:]
    image = {  # ImageProperties
        0: _RGB if channels == 3 else _GRAYSCALE,  # color_space
        1: {0: np.uint32(width), 1: np.uint32(height)},  # default_size
    }
    scale = np.array([127.5], "float32")
    images = {  # TensorMetadata
        0: "images",  # name
        1: "An image whose pixels are scaled to [-1, 1].",  # description
        3: {0: _IMAGE_PROPERTIES, 1: image},  # content
        # process_units: NormalizationOptions of mean and std
        4: [{0: _NORMALIZATION_OPTIONS, 1: {0: scale, 1: scale}}],
        5: {0: np.ones(1, "float32"), 1: -np.ones(1, "float32")},  # stats: max, min
    }
    outputs: dict[int, Any] = {
        0: output,
        1: "The score of each class before the softmax."
        if output == "logits"
        else "The features of the image, the input of a head.",
        3: {0: _FEATURE_PROPERTIES, 1: {}},
    }
    if labels:
        # associated_files: name, description, type
        outputs[6] = [
            {0: LABELS, 1: "The classes, one per line.", 2: _TENSOR_AXIS_LABELS}
        ]
    products = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    metadata = {  # ModelMetadata
        0: model.name,
        1: f"A Vision Transformer for images of {height}x{width}x{channels}, exported "
        f"by keras_vit as {precision}. Products with weights: {products}.",
        # subgraph_metadata: name, inputs, outputs
        3: [{0: "main", 2: [images], 3: [outputs]}],
        7: "1.0.0",  # min_parser_version
    }
    builder = flatbuffers.Builder()
    builder.Finish(_write(builder, metadata), file_identifier=b"M001")
    contents = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    schema = flatbuffer_utils.schema_fb
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(builder.Output())
    entry.name, entry.buffer = _NAME, len(contents.buffers)
    contents.buffers.append(buffer)
    others = [known for known in contents.metadata or [] if known.name != _NAME]
    contents.metadata = [*others, entry]
    return flatbuffer_utils.convert_object_to_bytearray(contents)


def append_files(
    path: str | os.PathLike, facts: dict[str, str], class_names: Sequence[str] | None
) -> None:
    """Packs facts and class names into a TFLite file, then a zip archive as well.

    `facts` are those of `train.models.exports.writing.facts_of`.
    """
    with zipfile.ZipFile(path, "a") as archive:
        if class_names is not None:
            archive.writestr(LABELS, "".join(f"{name}\n" for name in class_names))
        archive.writestr(FACTS, json.dumps(facts))


def _write(builder, value):
    """Writes a str, floats, a list of tables, or a table; returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, np.ndarray):
        return builder.CreateNumpyVector(value)
    if isinstance(value, list):
        tables = [_write(builder, item) for item in value]
        builder.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            builder.PrependUOffsetTRelative(table)
        return builder.EndVector()
    # Write what a table refers to before it.
    fields = {
        number: field if isinstance(field, np.integer) else _write(builder, field)
        for number, field in value.items()
    }
    builder.StartObject(max(fields, default=-1) + 1)
    for number, field in fields.items():
        if isinstance(field, np.integer):
            prepend = getattr(builder, f"Prepend{field.dtype.name.capitalize()}Slot")
            prepend(number, int(field), 0)
        else:
            builder.PrependUOffsetTRelativeSlot(number, field, 0)
    return builder.EndObject()
