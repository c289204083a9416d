"""Digests of what photos contain, by which features and copies are recognised."""

import hashlib

import numpy as np
import tensorflow as tf

from train.data import pipeline
from train.data.sources.splits import CORES, Split, tf_options
from zoo.store.progress import progress_bar

DIGEST_BYTES = 16
_BATCH = 256
# Fewer photos are read, not decoded, in a second or two.
_SHOWN = 2_000


def digests(split: Split) -> np.ndarray:
    """Returns a digest of each photo of a split, uint8 (photos, 16).

    It is of the encoded file, or of the pixels where a data set has these, and of how
    they are decoded: two photos of one digest are the same image. No photo is decoded.
    """
    way = repr((split.honour_exif, split.bits)).encode()

    def encoded(record: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        # This makes one text of pixels, too, whatever their size.
        return tf.io.serialize_tensor(split.read(record))

    records = split.records().map(encoded, num_parallel_calls=CORES, deterministic=True)
    batches = records.batch(_BATCH).prefetch(2).with_options(tf_options())
    digests = []
    with progress_bar(
        total=split.num_examples,
        unit="image",
        desc=f"reading {split.name}",
        disable=split.num_examples < _SHOWN,
    ) as bar:
        for batch in pipeline.explained(batches, split):
            texts = batch.numpy()
            digests += [
                hashlib.blake2b(text, digest_size=DIGEST_BYTES, key=way).digest()
                for text in texts
            ]
            bar.update(len(texts))
    joined = np.frombuffer(b"".join(digests), np.uint8)
    return joined.reshape(-1, DIGEST_BYTES)
