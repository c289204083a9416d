"""The training step, and the loop around it."""

import contextlib
import time

import keras
import numpy as np
import tensorflow as tf

from train.data.pipeline import NO_LABEL
from train.errors import RunError
from train.losses import softmax_cross_entropy

_OF_APPLY = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)
# Any number but 0: each device draws from a stream of its own.
_SEEDS_APART = 1_000_003


class Trainer:
    """Steps of gradient descent on batches cut into micro-batches.

    A step adds up the gradients of the micro-batches on each device, then those of all
    devices, clips the norm of the whole and updates: nothing after the first sum looks
    at single examples.

    Args:
        model: `keras.Model` from images to logits, made in the scope of the strategy.
        optimizer: `keras.optimizers.Optimizer`.
        micro_batches: int, the parts in which a device computes its share of a batch;
            divides it.
        clip_norm: float.
        loss: function of logits and labels to the losses of single examples.
        strategy: `tf.distribute.Strategy`; one device by default.

    Raises:
        ValueError: the optimizer has a setting that only `apply` heeds, which is not
            called here.
    """

    def __init__(
        self,
        model,
        optimizer,
        *,
        micro_batches=1,
        clip_norm=1.0,
        loss=softmax_cross_entropy,
        strategy=None,
    ):
        for name in _OF_APPLY:
            if getattr(optimizer, name, None):
                raise ValueError(
                    f"The trainer would leave out the optimizer's {name}, which only "
                    "its apply() heeds: build it without."
                )
        self.model = model
        self.optimizer = optimizer
        self.micro_batches = micro_batches
        self.clip_norm = clip_norm
        self.loss = loss
        self.strategy = strategy or tf.distribute.get_strategy()
        with self.strategy.scope():
            optimizer.build(model.trainable_variables)

    def spread_seeds(self):
        """Gives each device random numbers of its own, the first one those it had."""
        if self.strategy.num_replicas_in_sync == 1:
            return
        states = [
            variable
            for variable in self.model.non_trainable_variables
            if variable.path.endswith("seed_generator_state")
        ]

        def spread():
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, "int64")
            for state in states:
                offset = tf.stack([_SEEDS_APART * number, 0])
                state.assign(state + tf.cast(offset, state.dtype))

        self.strategy.run(spread)

    @property
    def variables(self):
        """All that a checkpoint must hold, in an order that stays the same."""
        return self.model.variables + self.optimizer.variables

    @tf.function
    def step(self, images, labels):
        """Takes one step.

        Args:
            images: float32 tensor (batch, height, width, channels), or one a device.
            labels: int32 tensor (batch,) or what else the loss takes, or one a device.

        Returns:
            Dict of float32 scalars `loss`, `accuracy`, `gradient_norm` (before the
            clip).
        """
        metrics = self.strategy.run(self._step, (images, labels))
        # The same on every device.
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], metrics
        )

    def _step(self, images, labels):
        """What each device does."""
        context = tf.distribute.get_replica_context()
        batch_size = tf.shape(labels)[0] * context.num_replicas_in_sync
        sums = self._accumulate(images, labels, batch_size)
        if context.num_replicas_in_sync > 1:
            flat = tf.nest.flatten(sums)
            flat = context.all_reduce(tf.distribute.ReduceOp.SUM, flat)
            sums = tf.nest.pack_sequence_as(sums, flat)
        gradients, loss, accuracy = sums
        norm = tf.linalg.global_norm(gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm, norm)
        context.merge_call(self._update, (gradients,))
        return {"loss": loss, "accuracy": accuracy, "gradient_norm": norm}

    def _update(self, strategy, gradients):
        """Updates the variables of all devices; `Optimizer.apply` would sum again."""
        rate = self.optimizer.learning_rate
        for gradient, variable in zip(
            gradients, self.model.trainable_variables, strict=True
        ):
            strategy.extended.update(
                variable.value,
                lambda value, gradient, rate: self.optimizer.update_step(
                    gradient, value, rate
                ),
                args=(gradient, rate),
                group=False,
            )
        self.optimizer.iterations.assign_add(1)

    def _accumulate(self, images, labels, batch_size):
        if self.micro_batches == 1:
            return self._shares(images, labels, batch_size)
        micro_batch_size = tf.shape(labels)[0] // self.micro_batches

        def add(index, sums):
            part = slice(index * micro_batch_size, (index + 1) * micro_batch_size)
            more = self._shares(images[part], labels[part], batch_size)
            return index + 1, tf.nest.map_structure(tf.add, sums, more)

        variables = self.model.trainable_variables
        zeros = [tf.zeros(variable.shape) for variable in variables], 0.0, 0.0
        # One at a time, or all of their activations are alive at once.
        _, sums = tf.while_loop(
            lambda index, _: index < self.micro_batches,
            add,
            (0, zeros),
            parallel_iterations=1,
        )
        return sums

    def _shares(self, images, labels, batch_size):
        """What these examples add to the batch's gradients, loss and accuracy."""
        count = tf.cast(batch_size, "float32")
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = self.loss(logits, labels)
            # Divided here, not in each gradient, which would copy them all.
            loss = tf.reduce_sum(losses) / count
        gradients = tape.gradient(loss, self.model.trainable_variables)
        return gradients, loss, tf.reduce_sum(_correct(logits, labels)) / count

    @tf.function(reduce_retracing=True)
    def logits(self, images):
        """Returns the float32 logits (batch, classes) of images, or of one a device."""
        found = self.strategy.run(self.model, (images,), {"training": False})
        return self.gathered(found)

    @tf.function(reduce_retracing=True)
    def gathered(self, values):
        """Returns as one tensor (batch, ...) what each device of each host has."""
        if self.strategy.num_replicas_in_sync > 1:
            values = self.strategy.gather(values, axis=0)
        return values


@contextlib.contextmanager
def explaining_full_memory(remedy):
    """Tells what to do where a model does not fit into the device's memory.

    Args:
        remedy: str.

    Raises:
        RunError: it does not.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise RunError(f"The device's memory is full: {remedy}") from error


def _correct(logits, labels):
    """Of mixed labels the largest counts."""
    if labels.shape.rank == 2:
        labels = tf.argmax(labels, axis=-1, output_type=tf.int32)
    predicted = tf.argmax(logits, axis=-1, output_type=labels.dtype)
    return tf.cast(predicted == labels, "float32")


def fit(trainer, batches, *, start_step, steps, callbacks):
    """Takes the steps that are left.

    Args:
        trainer: `Trainer`.
        batches: iterable of (images, labels), the first for step `start_step`.
        start_step: int, steps already taken.
        steps: int, steps in all.
        callbacks: functions of (step, metrics) called after each step, with the
            number of steps taken and a dict of floats: those of `Trainer.step`,
            `learning_rate`, and the step's `seconds`.

    Raises:
        RunError: the loss is no longer a number.
    """
    batches = iter(batches)
    for step in range(start_step + 1, steps + 1):
        learning_rate = float(trainer.optimizer.learning_rate)
        started = time.perf_counter()
        images, labels = next(batches)
        metrics = {
            name: float(value) for name, value in trainer.step(images, labels).items()
        }
        metrics["learning_rate"] = learning_rate
        metrics["seconds"] = time.perf_counter() - started
        for name in ("loss", "gradient_norm"):
            if not np.isfinite(metrics[name]):
                raise RunError(
                    f"The {name} of step {step} is {metrics[name]}: lower "
                    "--learning_rate, raise --warmup_steps or use "
                    "--precision=float32. The checkpoints before it are kept."
                )
        for callback in callbacks:
            callback(step, metrics)


def evaluate(trainer, batches, on_batch=None):
    """Runs the model over all batches, the last and smaller one included.

    Args:
        trainer: `Trainer`.
        batches: iterable of (images, labels).
        on_batch: None, or a function of the number of examples done so far.

    Returns:
        Tuple of labels (examples,) int32 and probabilities (examples, classes)
        float32, as NumPy arrays, and the mean loss as a float.
    """
    all_labels, all_logits = [], []
    done = 0
    for images, labels in batches:
        logits = trainer.logits(images).numpy()
        labels = trainer.gathered(labels).numpy()
        counted = labels != NO_LABEL
        all_logits.append(logits[counted])
        all_labels.append(labels[counted])
        done += len(all_labels[-1])
        if on_batch is not None:
            on_batch(done)
    labels, logits = np.concatenate(all_labels), np.concatenate(all_logits)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    picked = keras.ops.log_softmax(logits)
    picked = np.take_along_axis(
        keras.ops.convert_to_numpy(picked), labels[:, None], axis=1
    )
    return labels, probabilities, float(-picked.mean())
