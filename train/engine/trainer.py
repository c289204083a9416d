"""The training step: micro-batches, sum over devices, clip, update."""

import contextlib

import keras
import tensorflow as tf

from keras_vit.lean import lean
from train.engine.loss_scale import LossScale
from train.engine.losses import count_correct, softmax_cross_entropy

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
    devices, clips the norm of the whole and updates: only the first sum is
    over single examples.

    Args:
        model: `keras.Model` from inputs to logits, made in the scope of the strategy.
        optimizer: `keras.optimizers.Optimizer`.
        micro_batches: int, the parts in which a device computes its share of a batch;
            divides it.
        clip_norm: float, the largest norm of the whole gradient, or None for any.
        loss: function of logits and labels to the losses of single examples.
        accuracy: function of logits and labels to the accuracies of single examples.
        rate_scales: None, or dict of paths of variables to factors of their learning
            rate; 1 for those not named.
        average_decay: float in [0, 1), what the averages of the weights keep at a
            step; 0 for none.
        strategy: `tf.distribute.Strategy`; one device by default.

    Raises:
        ValueError: the optimizer has a setting that only its `apply` applies, which is
            not called here.
    """

    def __init__(
        self,
        model,
        optimizer,
        *,
        micro_batches=1,
        clip_norm=1.0,
        loss=softmax_cross_entropy,
        accuracy=count_correct,
        rate_scales=None,
        average_decay=0.0,
        strategy=None,
    ):
        for name in _OF_APPLY:
            if getattr(optimizer, name, None):
                raise ValueError(
                    f"The trainer would ignore the optimizer's {name}, which only its "
                    "apply() applies: build it without."
                )
        self.model = model
        self.lean = lean(model)
        self.optimizer = optimizer
        self.micro_batches = micro_batches
        self.clip_norm = clip_norm
        self.loss = loss
        self.accuracy = accuracy
        self.average_decay = average_decay
        self.strategy = strategy or tf.distribute.get_strategy()
        trained = model.trainable_variables
        scales = rate_scales or {}
        self.rate_scales = [scales.get(variable.path, 1.0) for variable in trained]
        is_half = model.compute_dtype == "float16"
        with self.strategy.scope():
            optimizer.build(trained)
            self.averages = []
            if average_decay:
                self.averages = [
                    keras.Variable(
                        keras.ops.convert_to_numpy(variable),
                        trainable=False,
                        name=f"{variable.path.replace('/', '_')}_average",
                    )
                    for variable in trained
                ]
            self.loss_scale = LossScale() if is_half else None

    def spread_seeds(self):
        """Gives each device random numbers of its own; the first keeps its state."""
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
        """All variables of a checkpoint, in an order that stays the same."""
        scale = self.loss_scale.variables if self.loss_scale else []
        return self.model.variables + self.optimizer.variables + self.averages + scale

    @contextlib.contextmanager
    def averaged(self):
        """Gives the model the averages of its weights, if any, within the context."""
        self._exchange_averages()
        try:
            yield
        finally:
            self._exchange_averages()

    def _exchange_averages(self):
        if not self.averages:
            return
        for weight, average in zip(
            self.model.trainable_variables, self.averages, strict=True
        ):
            kept = keras.ops.convert_to_numpy(weight)
            weight.assign(keras.ops.convert_to_numpy(average))
            average.assign(kept)

    # No control flow for AutoGraph, whose conversion takes a second of each start.
    @tf.function(autograph=False)
    def step(self, inputs, labels):
        """Takes one step.

        Args:
            inputs: what the model takes, tensors (batch, ...), or one per device.
            labels: what the loss takes, tensors (batch, ...), or one per device.

        Returns:
            Dict of float32 scalars `loss`, `accuracy`, `gradient_norm` (before the
            clip); in float16 also `loss_scale`, where a step whose gradients overflow
            changes nothing and has norm 0.
        """
        metrics = self.strategy.run(self._step, (inputs, labels))
        # The same on every device.
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], metrics
        )

    def _step(self, inputs, labels):
        """The step on each device."""
        context = tf.distribute.get_replica_context()
        batch_size = _batch_size(inputs) * context.num_replicas_in_sync
        sums = self._accumulate(inputs, labels, batch_size)
        if context.num_replicas_in_sync > 1:
            flat = tf.nest.flatten(sums)
            flat = context.all_reduce(tf.distribute.ReduceOp.SUM, flat)
            sums = tf.nest.pack_sequence_as(sums, flat)
        gradients, loss, accuracy = sums
        metrics = {"loss": loss, "accuracy": accuracy}
        if self.loss_scale:
            gradients = self.loss_scale.unscaled(gradients)
        norm = tf.linalg.global_norm(gradients)
        if self.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm, norm)
        is_finite = tf.math.is_finite(norm)
        if self.loss_scale:
            metrics["loss_scale"] = tf.convert_to_tensor(self.loss_scale.scale)
            norm = tf.where(is_finite, norm, 0.0)
        metrics["gradient_norm"] = norm
        context.merge_call(self._update, (gradients, is_finite))
        return metrics

    def _update(self, strategy, gradients, is_finite):
        """Updates the variables of all devices; `Optimizer.apply` would sum again."""
        rate = self.optimizer.learning_rate
        averages = self.averages or [None] * len(gradients)
        for gradient, variable, average, scale in zip(
            gradients,
            self.model.trainable_variables,
            averages,
            self.rate_scales,
            strict=True,
        ):
            strategy.extended.update(
                variable.value,
                self._update_one,
                args=(gradient, rate * scale, is_finite),
                kwargs={"average": average},
                group=False,
            )
        if self.loss_scale:
            one = strategy.experimental_local_results(is_finite)[0]
            self.loss_scale.update(one)
            self.optimizer.iterations.assign_add(tf.cast(one, "int32"))
        else:
            self.optimizer.iterations.assign_add(1)

    def _update_one(self, weight, gradient, rate, is_finite, average):
        def update():
            self.optimizer.update_step(gradient, weight, rate)
            if average is not None:
                # A smaller decay at first, or the initial weights would dominate.
                steps = tf.cast(self.optimizer.iterations, "float32")
                decay = tf.minimum(self.average_decay, (1.0 + steps) / (10.0 + steps))
                average.value.assign_sub((1.0 - decay) * (average - weight))

        if self.loss_scale:
            tf.cond(is_finite, update, lambda: None)
        else:
            update()

    def _accumulate(self, inputs, labels, batch_size):
        if self.micro_batches == 1:
            return self._shares(inputs, labels, batch_size)
        micro_batch_size = _batch_size(inputs) // self.micro_batches

        def add(index, sums):
            part = slice(index * micro_batch_size, (index + 1) * micro_batch_size)
            taken = tf.nest.map_structure(lambda whole: whole[part], (inputs, labels))
            more = self._shares(*taken, batch_size)
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

    def _shares(self, inputs, labels, batch_size):
        """Returns what these examples add to the gradients, loss and accuracy."""
        count = tf.cast(batch_size, "float32")
        with tf.GradientTape() as tape:
            with self.lean():
                logits = self.model(inputs, training=True)
            losses = self.loss(logits, labels)
            # Divided here, not in each gradient, which would copy them all.
            loss = tf.reduce_sum(losses) / count
            target = self.loss_scale.scaled(loss) if self.loss_scale else loss
        gradients = tape.gradient(target, self.model.trainable_variables)
        return gradients, loss, tf.reduce_sum(self.accuracy(logits, labels)) / count

    def predict(self, inputs):
        """Returns the float32 logits (batch, classes) of inputs as a NumPy array.

        Of distributed inputs, those of all devices of all hosts.
        """
        return self._logits(inputs).numpy()

    @tf.function(autograph=False, reduce_retracing=True)
    def _logits(self, inputs):
        found = self.strategy.run(self._answers, (inputs,))
        return self._gathered(found)

    def _answers(self, inputs):
        with self.lean():
            return self.model(inputs, training=False)

    def gather(self, values):
        """Returns distributed values of all hosts as one NumPy array (batch, ...)."""
        return self._gathered(values).numpy()

    @tf.function(autograph=False, reduce_retracing=True)
    def _gathered(self, values):
        if self.strategy.num_replicas_in_sync > 1:
            values = self.strategy.gather(values, axis=0)
        return values


def _batch_size(inputs):
    return tf.shape(tf.nest.flatten(inputs)[0])[0]
