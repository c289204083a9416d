"""The standard metadata of a TFLite file: its input, its output and its class names.

No required package has the generated classes of its schema, so tables are dicts of the
schema's field numbers here, and integers have the type of their field.
"""

import zipfile

import flatbuffers
import numpy as np

LABELS = "labels.txt"
_NAME = b"TFLITE_METADATA"
# Members of the schema's unions and enumerations.
_FEATURE_PROPERTIES, _IMAGE_PROPERTIES = np.uint8(1), np.uint8(2)
_RGB, _GRAYSCALE = np.uint8(1), np.uint8(2)
_NORMALIZATION_OPTIONS = np.uint8(1)
_TENSOR_AXIS_LABELS = np.uint8(2)


def add_metadata(content, *, name, description, image_shape, output, labels=False):
    """Returns the bytes of a TFLite file with metadata, earlier ones replaced.

    `labels` says whether `append_labels` will append class names.

    Source:
        https://ai.google.dev/edge/litert/conversion/tensorflow/metadata and
        metadata_schema.fbs there.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    schema = flatbuffer_utils.schema_fb
    buffer = schema.BufferT()
    metadata = _metadata(name, description, image_shape, output, labels)
    builder = flatbuffers.Builder()
    builder.Finish(_write(builder, metadata), file_identifier=b"M001")
    buffer.data = list(builder.Output())
    entry = schema.MetadataT()
    entry.name = _NAME
    entry.buffer = len(model.buffers)
    model.buffers.append(buffer)
    others = [known for known in model.metadata or [] if known.name != _NAME]
    model.metadata = [*others, entry]
    return flatbuffer_utils.convert_object_to_bytearray(model)


def append_labels(path, class_names):
    """Packs class names into a TFLite file, which then is also a zip archive."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(LABELS, "".join(f"{name}\n" for name in class_names))


def _metadata(name, description, image_shape, output, labels):
    height, width, channels = image_shape
    image = {  # ImageProperties
        0: _RGB if channels == 3 else _GRAYSCALE,  # color_space
        1: {0: np.uint32(width), 1: np.uint32(height)},  # default_size
    }
    scaling = {0: [127.5], 1: [127.5]}  # NormalizationOptions: mean, std
    images = {  # TensorMetadata
        0: "images",  # name
        1: "An image whose pixels are scaled to [-1, 1].",  # description
        3: {0: _IMAGE_PROPERTIES, 1: image},  # content
        4: [{0: _NORMALIZATION_OPTIONS, 1: scaling}],  # process_units
        5: {0: [1.0], 1: [-1.0]},  # stats: max, min
    }
    outputs = {
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
    subgraph = {0: "main", 2: [images], 3: [outputs]}  # name, inputs, outputs
    # ModelMetadata: name, description, subgraph_metadata, min_parser_version
    return {0: name, 1: description, 3: [subgraph], 7: "1.0.0"}


def _write(builder, value):
    """Writes a str, a list of floats or of tables, or a table; returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        prepend = builder.PrependFloat32
        if not isinstance(value[0], float):
            prepend = builder.PrependUOffsetTRelative
            value = [_write(builder, item) for item in value]
        builder.StartVector(4, len(value), 4)
        for item in reversed(value):
            prepend(item)
        return builder.EndVector()
    # Whatever a table refers to is written before it.
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
