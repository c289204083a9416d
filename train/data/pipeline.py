"""Batches for training, resumable at any step, and for evaluation."""

import dataclasses
import functools
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from train.data.share import ALL, Share
from train.data.sources.splits import DataError, Split, find_corrupt, named, pick
from train.data.transforms import augmentation, mixing, preprocessing

SHUFFLE_BUFFER = 50_000
CORES = os.cpu_count()
# In order, the next image may be a slow one: others get done meanwhile.
IN_FLIGHT = 2 * CORES
BATCHES_READY = 2
# Of record files too large for the buffer.
FILES_AT_ONCE = 16
NO_LABEL = -1


Finish = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple]


@dataclasses.dataclass(frozen=True)
class Changes:
    """What training images go through after the crop and the flip.

    Args:
        rand_augment: `(layers, magnitude)`, None for none.
        random_erasing: How often a part of an image is erased.
        mixup: The alpha of mixup, 0 for none.
        cutmix: The alpha of CutMix, 0 for none; not both.

    Example:

    >>> Changes(rand_augment=(2, 15), mixup=0.2).mixes
    True
    """

    rand_augment: tuple[int, float] | None = None
    random_erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    @property
    def mixes(self) -> bool:
        """Whether labels become rows of numbers."""
        return bool(self.mixup or self.cutmix)

    def image(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Changes an image of values 0..255."""
        seeds = tf.random.split(seed, 2)
        if self.rand_augment is not None:
            # The released code's images are whole numbers here.
            image = augmentation.rand_augment(
                tf.cast(image, tf.uint8), *self.rand_augment, seeds[0]
            )
        if self.random_erasing:
            image = augmentation.random_erasing(image, seeds[1], self.random_erasing)
        return image

    def batch(
        self, images: tf.Tensor, labels: tf.Tensor, classes: int, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mixes the examples of a whole batch."""
        labels = tf.one_hot(labels, classes)
        if self.mixup:
            return mixing.mixup(images, labels, self.mixup, seed)
        return mixing.cutmix(images, labels, self.cutmix, seed)


UNCHANGED = Changes()
# Apart from those of single examples.
_OF_BATCHES = 0x6D6978
_OF_FINISH = 0x66696E


def training_batches(
    split: Split,
    *,
    image_size: tuple[int, int],
    batch_size: int,
    seed: int,
    start_step: int = 0,
    crop: str = "inception",
    flip: bool = True,
    changes: Changes = UNCHANGED,
    classes: int | None = None,
    finish: Finish | None = None,
    share: Share = ALL,
) -> tf.data.Dataset:
    """Shuffles, crops and batches without end; batch k depends on the seed and k only.

    `start_step=k` gives bit for bit the batches that follow the first k. Every epoch
    takes every example once, in another order; a batch may span two epochs. Where the
    list of examples is in memory, or there are at most 50,000, each order is as likely
    as any other. Otherwise undecoded records go through a buffer of 50,000, filled
    from pieces all over the files in a random order, where the split has such.

    Args:
        split: The examples.
        image_size: `(height, width)` of the batches.
        batch_size: Examples a batch.
        seed: Decides the order and the augmentation.
        start_step: How many batches to leave out.
        crop: A name in `preprocessing.TRAIN_CROPS`.
        flip: Whether to mirror half of the images.
        changes: What images go through besides.
        classes: How many there are; only mixed labels need it.
        finish: Makes an element of batches, `(inputs, labels)`, of an image in [-1, 1],
            its label and integers `(2,)` of which the element may be a random function;
            by default of the first two.
        share: What this host prepares of every batch.

    Returns:
        `(images, labels)`: float32 `(batch_size, height, width, 3)` in [-1, 1] and
        int32 `(batch_size,)`, or where they are mixed float32 `(batch_size, classes)`;
        with several devices the batches of one after the other,
        each with its part of the examples.

    Raises:
        ValueError: for an unknown crop, a batch size below 1 or a negative step.

    Source: vision_transformer, vit_jax/input_pipeline.py (crop, flip, buffer).
    """
    if crop not in preprocessing.TRAIN_CROPS:
        raise ValueError(
            f'unknown crop "{crop}": choose one of {sorted(preprocessing.TRAIN_CROPS)}'
        )
    _check_batch_size(batch_size)
    if start_step < 0:
        raise ValueError(f"start_step must not be negative, got {start_step}")
    if changes.mixes and share.hosts > 1:
        raise ValueError(
            "mixup and CutMix take the examples of a whole batch, of which each of "
            f"{share.hosts} hosts has a part: leave them out, or use one host"
        )
    crop_image = preprocessing.TRAIN_CROPS[crop]
    start_example = start_step * batch_size
    start_epoch, done_in_epoch = divmod(start_example, split.num_examples)

    shuffled = _shuffled(split)
    if split.arrays is not None:
        # A graph would hold a copy of an array, but shares a tensor.
        with tf.device("CPU:0"):
            arrays = [tf.constant(values) for values in split.arrays]

    def shuffled_epoch(epoch):
        order_seed = tf.random.stateless_uniform(
            (), tf.stack([seed, epoch]), minval=None, maxval=None, dtype=tf.int64
        )
        done = tf.where(epoch == start_epoch, tf.constant(done_in_epoch, tf.int64), 0)
        return shuffled(order_seed, done)

    def prepare(index, example):
        if split.arrays is not None:
            example = [tf.gather(values, example) for values in arrays]
        record, label = example
        seeds = tf.random.split(tf.stack([seed, index]), num=2)
        decode = functools.partial(split.decode, record)
        image = crop_image(decode, image_size, seeds[0])
        if flip:
            image = preprocessing.random_flip(image, seeds[1])
        image = preprocessing.to_model_range(changes.image(image, seeds[1]))
        label = tf.cast(label, tf.int32)
        if finish is not None:
            return finish(image, label, tf.random.fold_in(seeds[1], _OF_FINISH))
        return image, label

    def mix(step, batch):
        step_seed = tf.random.fold_in(tf.stack([seed, step]), _OF_BATCHES)
        return changes.batch(*batch, classes, step_seed)

    epochs = tf.data.Dataset.range(start_epoch, tf.int64.max)
    indices = tf.data.Dataset.range(start_example, tf.int64.max)
    # Hosts that prepare others of these examples shuffle alike.
    numbered = tf.data.Dataset.zip((indices, epochs.flat_map(shuffled_epoch)))
    examples = share.of(numbered, batch_size).map(
        prepare, num_parallel_calls=IN_FLIGHT, deterministic=True
    )
    if changes.mixes:
        batches = examples.batch(batch_size, drop_remainder=True)
        batches = batches.enumerate(start_step).map(mix)
        if share.devices > 1:
            batches = batches.rebatch(batch_size // share.devices, drop_remainder=True)
    else:
        batches = examples.batch(batch_size // share.devices, drop_remainder=True)
    return batches.prefetch(BATCHES_READY).with_options(_options())


def _shuffled(split):
    """Returns a function of a seed and a number to an order without its beginning.

    Of examples, or of their places where they are in memory.
    """
    if split.arrays is not None:
        records = tf.data.Dataset.range(split.num_examples)
    else:
        records = split.records()

    def through_buffer(records, seed, done):
        # shuffle() mixes the global seed in: fix it, in this function's graph alone.
        tf.random.set_seed(1)
        buffer = min(split.num_examples, SHUFFLE_BUFFER)
        return records.shuffle(buffer, seed=seed, reshuffle_each_iteration=False).skip(
            done
        )

    if split.num_examples <= SHUFFLE_BUFFER:
        # No dearer than the shuffle buffer, which holds them all in any case.
        return functools.partial(through_buffer, records.cache())
    if split.arrays is not None:
        # The buffer would take 30 times the memory.
        return lambda seed, done: tf.data.Dataset.from_tensor_slices(
            _permutation(split.num_examples, seed)[done:]
        )
    if split.pieces is None:
        return functools.partial(through_buffer, records)
    pieces = split.pieces()

    def of_pieces(seed, done):
        order = tf.data.Dataset.from_tensor_slices(_permutation(pieces.count, seed))
        found = order.interleave(
            pieces.read,
            cycle_length=FILES_AT_ONCE,
            num_parallel_calls=min(CORES, FILES_AT_ONCE),
            deterministic=True,
        )
        return through_buffer(found.map(lambda _, example: example), seed, done)

    return of_pieces


def _permutation(count, seed):
    """Returns 0 to count - 1 in an order that follows from the seed."""
    keys = tf.random.stateless_uniform(
        (count,), tf.stack([seed, 0]), minval=None, maxval=None, dtype=tf.int64
    )
    return tf.argsort(keys, stable=True)


def evaluation_batches(
    split: Split,
    *,
    image_size: tuple[int, int],
    batch_size: int,
    finish: Finish | None = None,
    share: Share = ALL,
) -> tf.data.Dataset:
    """Batches every example once, in order, resized; the last batch may be smaller.

    Several devices always get batches of one size: the last is filled up with examples
    of label `NO_LABEL`, which do not count.

    Args:
        split: The examples.
        image_size: `(height, width)` of the batches.
        batch_size: Examples a batch.
        finish: As in `training_batches`; its integers are the same every time.
        share: What this host prepares of every batch.

    Returns:
        `(images, labels)`: float32 `(<= batch_size, height, width, 3)` in [-1, 1] and
        int32 `(<= batch_size,)`.

    Raises:
        ValueError: for a batch size below 1.

    Source: vision_transformer, vit_jax/input_pipeline.py (the resize).
    """
    _check_batch_size(batch_size)

    def prepare(index, example):
        record, label = example
        image = preprocessing.squash(split.decode(record), image_size)
        image, label = preprocessing.to_model_range(image), tf.cast(label, tf.int32)
        if finish is not None:
            return finish(image, label, tf.stack([_OF_FINISH, index]))
        return image, label

    records = split.records()
    if share.devices > 1:
        missing = -split.num_examples % batch_size
        filling = (
            records.take(1).repeat(missing).map(lambda record, _: (record, NO_LABEL))
        )
        records = records.map(lambda record, label: (record, tf.cast(label, tf.int32)))
        records = records.concatenate(filling)
    batches = (
        share.of(records.enumerate(), batch_size)
        .map(prepare, num_parallel_calls=IN_FLIGHT, deterministic=True)
        .batch(batch_size // share.devices)
        .prefetch(BATCHES_READY)
    )
    return batches.with_options(_options())


def samples(
    split: Split, count: int, *, image_size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prepares a few examples for pictures, as for evaluation.

    They are spread over the split, which often has its classes in order.

    Args:
        split: The examples.
        count: How many to take; all of a split that has fewer.
        image_size: `(height, width)` of the images.

    Returns:
        Their places in the split, images and labels.
    """
    places = np.unique(np.linspace(0, split.num_examples - 1, count).astype(int))
    [(images, labels)] = evaluation_batches(
        pick(split, places), image_size=image_size, batch_size=len(places)
    ).as_numpy_iterator()
    return places, images, labels


def training_samples(
    split: Split,
    count: int,
    *,
    image_size: tuple[int, int],
    seed: int,
    crop: str = "inception",
    flip: bool = True,
    changes: Changes = UNCHANGED,
    classes: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Prepares what a run sees first, for a picture of crops and augmentation.

    These are the very images that `training_batches` begins with. Mixed images alone
    may have other partners, as the batch to choose them from is smaller.

    Args:
        split: The examples.
        count: How many to take; all of a split that has fewer.
        image_size: `(height, width)` of the images.
        seed: As in `training_batches`, like all that follow.
        crop: A name in `preprocessing.TRAIN_CROPS`.
        flip: Whether to mirror half of the images.
        changes: What images go through besides.
        classes: How many there are; only mixed labels need it.

    Returns:
        Images and labels, as a batch of `training_batches` has them.
    """
    batches = training_batches(
        split,
        image_size=image_size,
        batch_size=min(count, split.num_examples),
        seed=seed,
        crop=crop,
        flip=flip,
        changes=changes,
        classes=classes,
    )
    return next(batches.take(1).as_numpy_iterator())


def explained(batches: tf.data.Dataset, split: Split):
    """Yields batches; if reading them fails, the error names the images behind it.

    Args:
        batches: Batches of this module.
        split: The split that they are read from.

    Yields:
        What `batches` has.

    Raises:
        DataError: when an image cannot be read or decoded.
    """
    try:
        yield from batches
    except (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.DataLossError,
    ) as error:
        raise explain_input_error(error, split) from error


def explain_input_error(
    error: tf.errors.InvalidArgumentError, split: Split
) -> DataError:
    """Finds the images behind an error that a dataset of this module raised.

    Decodes the whole split, so call it only after a failure.

    Args:
        error: What reading the next batch raised.
        split: The split that was read.

    Returns:
        A `DataError` to raise from `error`; it names the corrupt images.
    """
    corrupt = find_corrupt(split)
    if not corrupt:
        return DataError(
            f"reading {split.name} failed although every image decodes: {error}"
        )
    return _undecodable([split], corrupt)


def check_readable(*splits: Split | None) -> None:
    """Makes sure that all images of some splits can be decoded, by decoding them.

    Args:
        splits: The splits; None for one that there is not.

    Raises:
        DataError: when some cannot; it names them.
    """
    splits = [split for split in splits if split is not None]
    corrupt = [name for split in splits for name in find_corrupt(split)]
    if corrupt:
        raise _undecodable(splits, corrupt)


def _undecodable(splits, corrupt):
    total = sum(split.num_examples for split in splits)
    return DataError(
        f"{len(corrupt)} of the {total} images of "
        f"{' and '.join(split.name for split in splits)} cannot be decoded: "
        f"{named(corrupt)}; save them again as RGB JPEG or PNG, remove them, or give "
        "the command again with --skip_corrupt, which looks at all images first"
    )


def _check_batch_size(batch_size):
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")


def _options():
    options = tf.data.Options()
    # Its thread sleeps ever longer, and an iterator at its end often waits until it
    # wakes: in TensorFlow 2.21 an evaluation took up to twice its time.
    options.autotune.enabled = False
    # Not the pool that runs the model, which may have one thread (train.engine).
    options.threading.private_threadpool_size = CORES
    # Images are prepared side by side: sharing one among threads only takes them away
    # from the model.
    options.threading.max_intra_op_parallelism = 1
    # Sharding by files would make a batch depend on the number of workers.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return options
