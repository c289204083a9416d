"""Small data sets of every kind as files, and what splits make of them."""

import dataclasses
import json

import numpy as np
import tensorflow as tf

from train.data.sources import Split


def png(number, channels=3, size=(2, 3)):
    """Returns a PNG of one colour, by which `examples` knows it again."""
    return tf.io.encode_png(np.full((*size, channels), number, np.uint8)).numpy()


def lay_out(folder, files):
    """Writes files by their paths: bytes, text, records, or None for a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif isinstance(content, list):
            compression = "GZIP" if path.suffix == ".gz" else None
            with tf.io.TFRecordWriter(str(path), compression) as writer:
                for record in content:
                    writer.write(record)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def images(counts, ending="png", first=0):
    """Returns so many images of each folder, numbered from the first folder on."""
    paths = [f"{place}/{i}.{ending}" for place in counts for i in range(counts[place])]
    return {path: png(number) for number, path in enumerate(paths, first)}


def packed(**features):
    """Returns a `tf.train.Example` of bytes and integers; None for no feature."""
    found = {}
    for key, value in features.items():
        value = value if isinstance(value, list) else [value]
        if isinstance(value[0], bytes):
            list_of_bytes = tf.train.BytesList(value=value)
            found[key] = tf.train.Feature(bytes_list=list_of_bytes)
        elif value[0] is not None:
            list_of_numbers = tf.train.Int64List(value=value)
            found[key] = tf.train.Feature(int64_list=list_of_numbers)
    whole = tf.train.Example(features=tf.train.Features(feature=found))
    return whole.SerializeToString()


def record(number, label, text=None, **changes):
    """Returns an example as TFRecord files of ImageNet have it."""
    values = {"image/encoded": png(number), "image/class/label": label}
    return packed(**{**values, "image/class/text": text, **changes})


def tiny_images(
    labels,
    label=("classLabel", {"numClasses": "2"}),
    shards=None,
    image=None,
    **info,
):
    """Returns the files of a TFDS data set without code, "tiny_images".

    `labels` of each split are in the order of its files, `shards` has their lengths
    where there are several. Images are PNG whose pixels are their place, or `image`.
    """
    shards = {name: [len(labels[name])] for name in labels} | (shards or {})
    python = "tensorflow_datasets.core.features"
    kind = {"classLabel": "class_label_feature.ClassLabel", "text": "text_feature.Text"}
    features = {
        "image": {
            "image": {"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", "1"]}},
            "pythonClassName": f"{python}.image_feature.Image",
        },
        "label": {label[0]: label[1], "pythonClassName": f"{python}.{kind[label[0]]}"},
    }
    keys = [{"featureKey": "image"}, {"featureKey": "label"}]
    info |= {
        "fileFormat": "tfrecord",
        "name": "tiny_images",
        "version": "1.0.0",
        "supervisedKeys": {"tuple": {"items": keys}},
        "splits": [
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": name,
                "numBytes": "1000",
                "shardLengths": [str(length) for length in shards[name]],
            }
            for name in labels
        ],
    }
    files = {
        "features.json": json.dumps(
            {
                "featuresDict": {"features": features},
                "pythonClassName": f"{python}.features_dict.FeaturesDict",
            }
        ),
        "label.labels.txt": "no\nyes\n",
        "dataset_info.json": json.dumps(info),
    }
    for name, own in labels.items():
        records = [_tiny_example(i, one, image) for i, one in enumerate(own)]
        parts = np.split(np.array(records, object), np.cumsum(shards[name])[:-1])
        for number, part in enumerate(parts):
            path = f"tiny_images-{name}.tfrecord-{number:05}-of-{len(parts):05}"
            files[path] = part.tolist()
    return {f"tiny_images/1.0.0/{path}": content for path, content in files.items()}


def _tiny_example(number, label, image):
    image = image or png(number, channels=1)
    if label == "corrupt":
        image, label = image[:30], 0
    return packed(image=image, label=label)


def examples(split):
    """Returns the number in each image, and the label."""
    return [
        (int(split.decode(one)[0, 0, 0]), int(label)) for one, label in split.records()
    ]


def undecoded(split):
    """Returns the split with a black pixel for each image, which is quick to trace."""
    return dataclasses.replace(split, read=lambda record: tf.zeros((1, 1, 3), tf.uint8))


def numbered_split(count):
    """Returns examples whose label is their number, all with the same noise image."""
    image = np.random.RandomState(0).randint(0, 256, (12, 12, 3), np.uint8)

    def records():
        return tf.data.Dataset.range(count).map(lambda number: (image, number))

    return Split("numbered", count, records, tf.identity, lambda index: f"no. {index}")


def table(*rows, name="a.csv", header="path,label,split"):
    return NUMBERED | {name: "\n".join([header, *rows, ""])}


def lacking(files, part):
    return {name: files[name] for name in files if not name.startswith(part)}


DIVIDED = images({"train/daisy": 3, "train/tulip": 2, "test/daisy": 2, "test/tulip": 1})
NUMBERED = images({"images": 10})
RECORDS = {
    "train-00001-of-00002.tfrecord": [record(3, 1), record(4, 0)],
    "train-00000-of-00002.tfrecord": [record(number, number) for number in range(3)],
    "test-0.tfrecords": [record(5, 2)],
}
UNTRAINED = {"test-0.tfrecords": [record(5, 2)]}
VALIDATION = {"validation/daisy/0.png": png(8), "validation/tulip/0.png": png(9)}
PHOTOS = images({"daisy": 3, "tulip": 3}, "webp")
NAMED = {
    "train.tfrecord": [record(0, 2, b"rose"), record(1, 0, b"aster")],
    "test.tfrecord": [record(2, 2, b"rose")],
}
NAMES = {
    b"two\nlines": r"two\x0alines",
    b"return\r": r"return\x0d",
    b"\x1b[31mred": r"\x1b[31mred",
    b"latin\xff": r"latin\udcff",
    "paragraph\u2029": r"paragraph\u2029",
    "\u202egpj": r"\u202egpj",
    "\u2067\u05e9\u2069": "\\u2067\u05e9\\u2069",
}
# With the marks that Hebrew and Arabic names have.
MARKED = ("\u05e9\u05dc\u05d5\u05dd\u200f (1)", "\u061cعبّاد", "a\u200e")
