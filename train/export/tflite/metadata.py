"""What a TFLite file says of itself, in the standard metadata of TFLite."""

import zipfile

import flatbuffers

LABELS = "labels.txt"

# Places of fields in their tables, and numbers of unions and enumerations, in the
# standard's metadata_schema.fbs.
_MODEL = {"name": 0, "description": 1, "subgraphs": 3, "parser": 7}
_SUBGRAPH = {"name": 0, "inputs": 2, "outputs": 3}
_TENSOR = {
    "name": 0,
    "description": 1,
    "content": 3,
    "units": 4,
    "stats": 5,
    "files": 6,
}
_CONTENT = {"properties_type": 0, "properties": 1}
_IMAGE = {"color_space": 0, "default_size": 1}
_SIZE = {"width": 0, "height": 1}
_UNIT = {"options_type": 0, "options": 1}
_NORMALIZATION = {"mean": 0, "std": 1}
_STATS = {"max": 0, "min": 1}
_FILE = {"name": 0, "description": 1, "type": 2}
_FEATURE_PROPERTIES, _IMAGE_PROPERTIES = 1, 2
_RGB, _GRAYSCALE = 1, 2
_NORMALIZATION_OPTIONS = 1
_TENSOR_AXIS_LABELS = 2

_NAME = b"TFLITE_METADATA"
_PARSER_VERSION = "1.0.0"


def add_metadata(content, *, name, description, image_shape, output, labels=False):
    """Returns a TFLite file with its metadata.

    Args:
        content: bytes of the file.
        name: str, the model's.
        description: str.
        image_shape: tuple, (height, width, channels) of what goes in.
        output: str, the name of what comes out.
        labels: bool, whether `LABELS` will be appended and names the classes.

    Returns:
        Bytes-like, the file with metadata; what it had under that name is replaced.

    Source:
        https://ai.google.dev/edge/litert/conversion/tensorflow/metadata and
        metadata_schema.fbs there.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    schema = flatbuffer_utils.schema_fb
    buffer = schema.BufferT()
    buffer.data = list(_metadata(name, description, image_shape, output, labels))
    entry = schema.MetadataT()
    entry.name = _NAME
    entry.buffer = len(model.buffers)
    model.buffers.append(buffer)
    others = [known for known in model.metadata or [] if known.name != _NAME]
    model.metadata = [*others, entry]
    return flatbuffer_utils.convert_object_to_bytearray(model)


def append_labels(path, class_names):
    """Packs the names of the classes into a TFLite file.

    Args:
        path: path of the file, which is also a zip archive from then on.
        class_names: sequence of str in the order of the outputs.
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(LABELS, "".join(f"{name}\n" for name in class_names))


def _metadata(name, description, image_shape, output, labels):
    builder = flatbuffers.Builder()
    tables = _Tables(builder)
    height, width, channels = image_shape
    image = tables.table(
        _IMAGE,
        color_space=("Uint8", _RGB if channels == 3 else _GRAYSCALE),
        default_size=tables.table(
            _SIZE, width=("Uint32", width), height=("Uint32", height)
        ),
    )
    options = tables.table(
        _NORMALIZATION, mean=tables.floats([127.5]), std=tables.floats([127.5])
    )
    images = tables.table(
        _TENSOR,
        name=tables.text("images"),
        description=tables.text("An image whose pixels are scaled to [-1, 1]."),
        content=tables.table(
            _CONTENT, properties_type=("Uint8", _IMAGE_PROPERTIES), properties=image
        ),
        units=tables.tables(
            tables.table(
                _UNIT, options_type=("Uint8", _NORMALIZATION_OPTIONS), options=options
            )
        ),
        stats=tables.table(_STATS, max=tables.floats([1]), min=tables.floats([-1])),
    )
    files = {}
    if labels:
        file = tables.table(
            _FILE,
            name=tables.text(LABELS),
            description=tables.text("The classes, one a line."),
            type=("Uint8", _TENSOR_AXIS_LABELS),
        )
        files["files"] = tables.tables(file)
    outputs = tables.table(
        _TENSOR,
        name=tables.text(output),
        description=tables.text(
            "The score of each class before the softmax."
            if output == "logits"
            else "The image's features, what would go into a head."
        ),
        content=tables.table(
            _CONTENT,
            properties_type=("Uint8", _FEATURE_PROPERTIES),
            properties=tables.table({}),
        ),
        **files,
    )
    subgraph = tables.table(
        _SUBGRAPH,
        name=tables.text("main"),
        inputs=tables.tables(images),
        outputs=tables.tables(outputs),
    )
    root = tables.table(
        _MODEL,
        name=tables.text(name),
        description=tables.text(description),
        subgraphs=tables.tables(subgraph),
        parser=tables.text(_PARSER_VERSION),
    )
    builder.Finish(root, file_identifier=b"M001")
    return builder.Output()


class _Tables:
    """Writes tables of a schema that is given as places of fields."""

    def __init__(self, builder):
        self.builder = builder

    def text(self, text):
        return self.builder.CreateString(text)

    def floats(self, values):
        self.builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self.builder.PrependFloat32(value)
        return self.builder.EndVector()

    def tables(self, *offsets):
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()

    def table(self, places, **fields):
        """Fields are offsets of what was written before, or (kind, number)."""
        self.builder.StartObject(max(places.values(), default=-1) + 1)
        for name, value in fields.items():
            if isinstance(value, tuple):
                kind, number = value
                write = getattr(self.builder, f"Prepend{kind}Slot")
                write(places[name], number, 0)
            else:
                self.builder.PrependUOffsetTRelativeSlot(places[name], value, 0)
        return self.builder.EndObject()
