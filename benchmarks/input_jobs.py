"""What reads a folder of photos: a row and a job a contender.

Every job takes `folder` (as of `benchmarks.photos`), `image_size` and `batch`, and its
step is one pass over the photos of `folder/train`. A job of TensorFlow reads anew at
each step: no batch waits for it, and none is left behind that others would pay for.
"""

import collections
import itertools
import os
import pathlib

from benchmarks.contest import row

_OURS = ("tensorflow", "train.data.pipeline")

OURS = {}

PEERS = {}


def _pass(batches):
    """Returns the step that takes all batches and keeps none."""
    return lambda: collections.deque(batches, maxlen=0)


def _split(folder):
    from train.data import sources

    return sources.load(folder).train


@row(OURS, "training", "keras_vit training batches", _OURS)
def training(folder, image_size, batch):
    """Random crops, flipped, as in `train.finetune`."""
    from train.data import pipeline

    split = _split(folder)
    batches = pipeline.training_batches(
        split, image_size=(image_size, image_size), batch_size=batch, seed=0
    )
    return _pass(batches.take(split.num_examples // batch))


@row(OURS, "evaluation", "keras_vit evaluation batches", _OURS)
def evaluation(folder, image_size, batch):
    """Whole images, as in `train.finetune`."""
    from train.data import pipeline

    batches = pipeline.evaluation_batches(
        _split(folder), image_size=(image_size, image_size), batch_size=batch
    )
    return _pass(batches)


def _paths(folder):
    return sorted(map(str, pathlib.Path(folder, "train", "photo").iterdir()))


def _windows(paths):
    """Returns a window an image, drawn as for training, as an array."""
    import numpy as np
    import tensorflow as tf

    from train.data.transforms.preprocessing import inception_window

    return np.stack(
        [
            inception_window(
                tf.io.extract_jpeg_shape(tf.io.read_file(path)), tf.stack([0, index])
            )
            for index, path in enumerate(paths)
        ]
    )


def _bare(examples, read, batch):
    import tensorflow as tf

    return _pass(
        tf.data.Dataset.from_tensor_slices(examples)
        .map(read, num_parallel_calls=2 * os.cpu_count())
        .batch(batch)
        .prefetch(2)
        .with_options(_untuned())
    )


def _untuned():
    """As in `train.data.pipeline`: tuning would hold up the end of a pass."""
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return options


@row(PEERS, "crop", "bare decode_and_crop_jpeg", ("tensorflow",))
def bare_crop(folder, image_size, batch):
    """Windows that are known before, and one pixel of each goes on."""
    import tensorflow as tf

    def read(path, window):
        return tf.io.decode_and_crop_jpeg(tf.io.read_file(path), window, 3)[0, 0]

    paths = _paths(folder)
    return _bare((paths, _windows(paths)), read, batch)


@row(PEERS, "crop-resize", "bare decode_and_crop_jpeg + resize", ("tensorflow",))
def bare_crop_resize(folder, image_size, batch):
    """The same, resized."""
    import tensorflow as tf

    def read(path, window):
        crop = tf.io.decode_and_crop_jpeg(tf.io.read_file(path), window, 3)
        return tf.image.resize(crop, (image_size, image_size))

    paths = _paths(folder)
    return _bare((paths, _windows(paths)), read, batch)


@row(PEERS, "decode", "bare decode_jpeg", ("tensorflow",))
def bare_decode(folder, image_size, batch):
    """Whole images, of which one pixel goes on."""
    import tensorflow as tf

    def read(path):
        return tf.io.decode_jpeg(tf.io.read_file(path), 3)[0, 0]

    return _bare(_paths(folder), read, batch)


@row(PEERS, "pillow", "Pillow crop + resize", ("tensorflow", "PIL"))
def pillow(folder, image_size, batch):
    """The same windows, in as many threads as there are cores."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    from PIL import Image

    paths = _paths(folder)
    windows = _windows(paths).tolist()
    pool = ThreadPoolExecutor(os.cpu_count())

    def read(path, window):
        top, left, height, width = window
        with Image.open(path) as image:
            crop = image.convert("RGB").resize(
                (image_size, image_size),
                Image.Resampling.BILINEAR,
                box=(left, top, left + width, top + height),
            )
        return np.asarray(crop, "float32")

    def step():
        images = pool.map(read, paths, windows)
        for _ in range(0, len(paths), batch):
            np.stack([*itertools.islice(images, batch)])

    return step


@row(PEERS, "keras", "keras image_dataset_from_directory", ("tensorflow", "keras"))
def keras(folder, image_size, batch):
    """Whole images."""
    from keras.utils import image_dataset_from_directory

    return _pass(
        image_dataset_from_directory(
            os.path.join(folder, "train"),
            image_size=(image_size, image_size),
            batch_size=batch,
            shuffle=False,
        ).with_options(_untuned())
    )


@row(PEERS, "torchvision", "torchvision RandomResizedCrop", ("torch", "torchvision"))
def torchvision(folder, image_size, batch):
    """Random crops, flipped, in as many processes as there are cores."""
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(
                image_size, scale=(0.05, 1.0), ratio=(0.75, 1.33), antialias=False
            ),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    images = datasets.ImageFolder(os.path.join(folder, "train"), transform)
    return _pass(
        DataLoader(
            images,
            batch_size=batch,
            shuffle=True,
            num_workers=os.cpu_count(),
            persistent_workers=True,
        )
    )
