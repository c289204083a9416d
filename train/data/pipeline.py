"""Batches for training, resumable at any step, and for evaluation."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from train.common.errors import first_line
from train.data.checking import DataError
from train.data.registry import Augmentation
from train.data.sources.corrupt import check_readable
from train.data.sources.splits import CORES, Split, pick, tf_options
from train.data.sources.subset import spread
from train.data.transforms import keras_layer, preprocessing
from train.data.transforms.augmentation import augment
from train.data.transforms.decoding import cut
from train.data.transforms.mixing import cutmix, mixup

SHUFFLE_BUFFER = 50_000
# The next image in order may be a slow one: others get done meanwhile.
_IN_FLIGHT = 2 * CORES
BATCHES_READY = 2
# Record files that are too large for the buffer are interleaved.
_FILES_AT_ONCE = 16
NO_LABEL = -1
# Seeds are folded with these, so that batches, `finish` and layers have random numbers
# of their own.
_BATCH_SEED = 0x6D6978
_FINISH_SEED = 0x66696E
_LAYER_SEED = 0x6C6179
_UNCHANGED = Augmentation()

# AutoGraph would find nothing to convert, and seek it for most of a second.
_as_written = tf.autograph.experimental.do_not_convert

# A `finish` makes an element of batches, `(inputs, labels)`, of an image in [-1, 1],
# its label and a seed, integers `(2,)`.
Finish = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple]


@dataclasses.dataclass(frozen=True)
class Share:
    """The part of every batch that one of several hosts prepares for its devices.

    Device 0 has the first examples of a batch, device 1 the next, and so on; `devices`
    counts those of all hosts, which have equally many. `filled` asks for batches of one
    size in evaluation, as several devices and XLA need them.
    """

    host: int = 0
    hosts: int = 1
    devices: int = 1
    filled: bool = False

    def of(
        self, numbered: tf.data.Dataset, batch_size: int, are_integers: bool = False
    ) -> tf.data.Dataset:
        """Keeps this host's part of a data set of (number, example) pairs.

        `are_integers` says that examples are integers: a slice of a batch of these
        takes 1/30 of the time of a filter.
        """
        if batch_size % self.devices:
            raise ValueError(
                f"batch_size={batch_size} cannot be shared equally by {self.devices} "
                "devices"
            )
        if self.hosts == 1:
            return numbered
        size = batch_size // self.hosts
        if are_integers:
            here = slice(self.host * size, (self.host + 1) * size)
            parts = numbered.batch(batch_size).map(
                lambda numbers, examples: (numbers[here], examples[here])
            )
            return parts.unbatch()
        return numbered.filter(
            lambda number, *_: number % batch_size // size == self.host
        )


def training_batches(
    split: Split,
    *,
    image_size: tuple[int, int],
    batch_size: int,
    seed: int,
    start_step: int = 0,
    crop: str = "inception",
    flip: bool = True,
    augmentation: Augmentation = _UNCHANGED,
    augmentation_layer: Any = None,
    classes: int | None = None,
    finish: Finish | None = None,
    share: Share = Share(),
) -> tf.data.Dataset:
    """Shuffles, crops, flips and augments examples forever, resumable at any step.

    Every epoch has every example once, in an order of its own (docs/data.md). Order,
    crops and augmentation are functions of the seed and the example's number alone:
    batches from `start_step` on are those that a run from the beginning has there.

    `image_size` is `(height, width)`, `crop` a name in `train.data.registry.CROPS`. A
    flip mirrors half of the images. `augmentation_layer` is None, or what
    `train.data.transforms.keras_layer.traced` takes, for images of 0..255. Only mixed
    labels need `classes`, their number.
    `finish` makes `(inputs, labels)` of an image in [-1, 1], its label and its seed,
    integers `(2,)`. `share` is what this host prepares of every batch.

    Returns:
        `(images, labels)`: float32 `(batch_size, height, width, 3)` in [-1, 1] and
        int32 `(batch_size,)`, or where they are mixed or have several values float32
        `(batch_size, values)`; with several devices the parts of one after the other.
        Labels of masks are int32 `(batch_size, height, width)`, cut and mirrored with
        their images.

    Source: vision_transformer, vit_jax/input_pipeline.py (crop, flip, buffer).
    """
    crop_image = preprocessing.train_crop(crop)
    _check_batch_size(batch_size)
    if start_step < 0:
        raise ValueError(f"start_step must not be negative, got {start_step}")
    if augmentation.mixes and share.hosts > 1:
        raise ValueError(
            "mixup and CutMix take the examples of a whole batch, of which each of "
            f"{share.hosts} hosts has a part: leave them out, or use one host"
        )
    if split.read_mask is not None:
        _check_changes_of_masks(augmentation, augmentation_layer)
    through_layer = None
    if augmentation_layer is not None:
        through_layer = keras_layer.traced(augmentation_layer, image_size)
    start_example = start_step * batch_size
    start_epoch, done_in_epoch = divmod(start_example, split.num_examples)
    files = _read_one_by_one(split, share)
    by_index = split.arrays is not None or files is not None
    shuffled = _shuffled(split, by_index)

    @_as_written
    def shuffled_epoch(epoch: tf.Tensor) -> Any:
        order_seed = tf.random.stateless_uniform(
            (), tf.stack([seed, epoch]), minval=None, maxval=None, dtype=tf.int64
        )
        done = tf.where(epoch == start_epoch, tf.constant(done_in_epoch, tf.int64), 0)
        return shuffled(order_seed, done)

    @_as_written
    def prepare(number: tf.Tensor, example: Any) -> Any:
        record, label = example
        seeds = tf.random.split(tf.stack([seed, number]), num=2)
        crop_seed, image_seed = tf.unstack(seeds)

        def flipped(pixels: tf.Tensor) -> Any:
            if not flip:
                return pixels
            return tf.image.stateless_random_flip_left_right(pixels, image_seed)

        def decode(
            choose_window: Callable[[tf.Tensor], tf.Tensor] | None = None,
        ) -> Any:
            # Flip bytes before the resize: a quarter of the memory to move.
            return flipped(split.decode(record, choose_window, fast=True))

        def decode_mask(
            choose_window: Callable[[tf.Tensor], tf.Tensor] | None = None,
        ) -> Any:
            return flipped(cut(split.read_mask(label)[..., None], choose_window))

        image = crop_image(decode, image_size, crop_seed)
        image = augment(image, augmentation, image_seed)
        if through_layer is not None:
            layer_seed = tf.random.fold_in(image_seed, _LAYER_SEED)
            image = through_layer(tf.cast(image, tf.float32), layer_seed)
        image = preprocessing.to_model_range(image)
        if split.read_mask is not None:
            label = preprocessing.mask_crop(
                crop_image, decode_mask, image_size, crop_seed
            )
        label = _as_label(label)
        if finish is None:
            return image, label
        return finish(image, label, tf.random.fold_in(image_seed, _FINISH_SEED))

    @_as_written
    def mix_batch(step: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> Any:
        images, labels = batch
        if labels.shape.rank == 1:
            labels = tf.one_hot(labels, classes)
        step_seed = tf.random.fold_in(tf.stack([seed, step]), _BATCH_SEED)
        if augmentation.mixup:
            return mixup(images, labels, augmentation.mixup, step_seed)
        return cutmix(images, labels, augmentation.cutmix, step_seed)

    epochs = tf.data.Dataset.range(start_epoch, tf.int64.max)
    numbers = tf.data.Dataset.range(start_example, tf.int64.max)
    # Hosts that prepare others of these examples shuffle alike.
    numbered = tf.data.Dataset.zip((numbers, epochs.flat_map(shuffled_epoch)))
    own = share.of(numbered, batch_size, by_index)
    examples = _prepared(own, prepare, split, files)
    device_size = batch_size // share.devices
    if augmentation.mixes:
        batches = examples.batch(batch_size, drop_remainder=True)
        batches = batches.enumerate(start_step).map(mix_batch)
        if share.devices > 1:
            batches = batches.rebatch(device_size, drop_remainder=True)
    else:
        batches = examples.batch(device_size, drop_remainder=True)
    return batches.prefetch(BATCHES_READY).with_options(tf_options())


def _as_label(label):
    """Returns numbers of classes as int32, several values of a photo as float32."""
    return tf.cast(label, tf.float32 if label.shape.rank == 1 else tf.int32)


def _no_label(label):
    """Returns what labels are filled up with: any value may be a number's."""
    return float("nan") if label.dtype.is_floating else NO_LABEL


def _read_one_by_one(split, share):
    """Returns the `RecordFiles` of which a host reads its own records only, or None.

    One host needs all of them, and reads ranges: that is quicker.
    """
    if share.hosts == 1 or split.record_files is None:
        return None
    files = split.record_files()
    return files if files.can_read_each else None


def _prepared(numbered, prepare, split, files):
    """Maps (number, example) pairs by `prepare`.

    Where examples are in memory or read one by one from `files`, these are pairs of a
    number and an index.
    """
    function = prepare
    if split.arrays is not None:
        # A graph would hold a copy of an array, but shares a tensor.
        with tf.device("CPU:0"):
            arrays = [tf.constant(values) for values in split.arrays]

        @_as_written
        def function(number: tf.Tensor, index: tf.Tensor) -> Any:
            return prepare(number, [tf.gather(values, index) for values in arrays])

    elif files is not None:
        numbered = files.read_each(numbered)

        @_as_written
        def function(pair: tuple, record: tf.Tensor) -> Any:
            number, index = pair
            return prepare(number, files.example(index, record))

    return numbered.map(function, num_parallel_calls=_IN_FLIGHT, deterministic=True)


def _shuffled(split, by_index):
    """Returns a function (seed, examples to skip) -> shuffled data set.

    It has the examples, or their indices in the split, in the same order.
    """
    count = split.num_examples
    records = tf.data.Dataset.range(count) if by_index else split.records()

    def through_buffer(
        records: tf.data.Dataset, seed: tf.Tensor, done: tf.Tensor
    ) -> Any:
        # shuffle() mixes the global seed in: fix it, in this function's graph alone.
        tf.random.set_seed(1)
        settings = {"seed": seed, "reshuffle_each_iteration": False}
        return records.shuffle(min(count, SHUFFLE_BUFFER), **settings).skip(done)

    if count <= SHUFFLE_BUFFER:
        # The shuffle buffer holds them all in any case.
        return functools.partial(through_buffer, records.cache())
    if split.arrays is not None:
        # The buffer would take 30 times the memory.
        return lambda seed, done: tf.data.Dataset.from_tensor_slices(
            _permutation(count, seed)[done:]
        )
    if split.record_files is None:
        return functools.partial(through_buffer, records)
    files = split.record_files()

    def of_ranges(seed: tf.Tensor, done: tf.Tensor) -> Any:
        order = tf.data.Dataset.from_tensor_slices(_permutation(files.ranges, seed))
        interleaved = order.interleave(
            files.range_indices if by_index else files.read_range,
            cycle_length=_FILES_AT_ONCE,
            num_parallel_calls=min(CORES, _FILES_AT_ONCE),
            deterministic=True,
        )
        if not by_index:
            interleaved = interleaved.map(lambda _, example: example)
        return through_buffer(interleaved, seed, done)

    return of_ranges


def _permutation(count, seed):
    keys = tf.random.stateless_uniform(
        (count,), tf.stack([seed, 0]), minval=None, maxval=None, dtype=tf.int64
    )
    return tf.argsort(keys, stable=True)


def evaluation_batches(
    split: Split,
    *,
    image_size: tuple[int, int],
    batch_size: int,
    preparation: str = "squash",
    finish: Finish | None = None,
    share: Share = Share(),
) -> tf.data.Dataset:
    """Batches every example once, in order, resized; the last batch may be smaller.

    Arguments and results are those of `training_batches`; `preparation` is that of
    `zoo.photos.prepare`, whose numbers these are; the seeds of `finish` are the same
    every time. Where `share.filled`, all batches have one size: the last is filled
    up with examples of label `NO_LABEL`, which do not count.

    Source: vision_transformer, vit_jax/input_pipeline.py (the resize).
    """
    _check_batch_size(batch_size)
    if split.read_mask is not None and preparation != "squash":
        raise ValueError(
            f'preparation="{preparation}" cuts images, and masks are compared as a '
            'whole: pass preparation="squash"'
        )

    @_as_written
    def prepare(number: tf.Tensor, example: Any) -> Any:
        record, label = example
        image = preprocessing.fitted(split.decode(record), image_size, preparation)
        if split.read_mask is not None:
            mask = split.read_mask(label)[..., None]
            label = preprocessing.nearest(mask, image_size)[..., 0]
        image, label = preprocessing.to_model_range(image), _as_label(label)
        if share.filled:
            label = tf.where(number < split.num_examples, label, _no_label(label))
        if finish is None:
            return image, label
        return finish(image, label, tf.stack([_FINISH_SEED, number]))

    files = _read_one_by_one(split, share)
    by_index = split.arrays is not None or files is not None
    records = tf.data.Dataset.range(split.num_examples) if by_index else split.records()
    if share.devices == 1:
        batch_size = min(batch_size, split.num_examples)
    if share.filled:
        filling = records.take(1).repeat(-split.num_examples % batch_size)
        records = records.concatenate(filling)
    own = share.of(records.enumerate(), batch_size, by_index)
    examples = _prepared(own, prepare, split, files)
    batches = examples.batch(batch_size // share.devices)
    return batches.prefetch(BATCHES_READY).with_options(tf_options())


def samples(split: Split, count: int, **settings: Any) -> tuple:
    """Prepares at most `count` examples for pictures, as `evaluation_batches` does.

    They are evenly spaced, for a split often has its classes in order. Returns their
    places in the split, images and labels.
    """
    places = spread(split.num_examples, count)
    chosen = pick(split, places)
    batches = evaluation_batches(chosen, batch_size=len(places), **settings)
    return places, *next(batches.as_numpy_iterator())


def training_samples(
    split: Split, count: int, **settings: Any
) -> tuple[np.ndarray, ...]:
    """Returns a batch of at most `count` examples that `training_batches` begins with.

    Mixed images alone may have other partners, as the batch is smaller.
    """
    batch_size = min(count, split.num_examples)
    batches = training_batches(split, batch_size=batch_size, **settings)
    return next(batches.take(1).as_numpy_iterator())


def explained(batches: tf.data.Dataset, split: Split) -> Iterator:
    """Yields batches of a split; a `DataError` names the images that cannot be read."""
    try:
        yield from batches
    except (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.DataLossError,
    ) as error:
        check_readable(split)
        # TensorFlow's prefix to the error of a Python function ends in "}} ".
        reason = first_line(str(error).partition("}} ")[2] or error)
        raise DataError(
            f"reading {split.name} failed although every image decodes: {reason}"
        ) from error


def _check_changes_of_masks(augmentation, augmentation_layer):
    """Refuses what changes images after the crop and the flip: masks would not follow.

    Mixup and CutMix take one label per image, the others move or hide what it shows.
    """
    # A recipe is one with other settings besides.
    fields = dataclasses.fields(Augmentation)
    names = [one.name for one in fields if getattr(augmentation, one.name)]
    if augmentation_layer is not None:
        names.append("augmentation_layer")
    if names:
        raise ValueError(
            f"{', '.join(names)}: masks follow crops and flips alone, so these would "
            "change images without their masks; leave them out"
        )


def _check_batch_size(batch_size):
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
