"""The training step on TensorFlow: micro-batches, sum over devices, clip, update."""

import contextlib
import itertools

import keras
import tensorflow as tf
from keras import ops

from train.data.pipeline import NO_LABEL
from train.engine.loss_scale import LossScale
from train.engine.losses import count_correct, softmax_cross_entropy

# Settings of an optimizer that only its `apply` applies, which is not called here.
_OF_APPLY = (
    *("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema"),
    *("loss_scale_factor", "gradient_accumulation_steps"),
)
# Gradients are summed over devices in a few pieces.
_PIECES = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=50 * 2**20)
# Any number but 0: each device draws from a stream of its own.
_SEEDS_APART = 1_000_003


class Trainer:
    """Steps of gradient descent on batches cut into micro-batches.

    A step adds up the gradients of the micro-batches on each device, then those of all
    devices, clips the norm of the sum and updates. The model is made in the scope of
    the strategy. `micro_batches` are the parts of a device's share of a batch; `loss`
    and `accuracy` take logits and labels, and return one number per example;
    `rate_scales` maps paths of variables to factors of their learning rate;
    `average_decay` is what averages of the weights keep at a step, 0 for no averages;
    with `jit_compile` XLA compiles the model and its gradients.
    """

    # Steps that run while `fetch` returns those before: here it waits for all.
    ahead = 0

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
        jit_compile=None,
    ):
        for name in _OF_APPLY:
            if getattr(optimizer, name, None):
                raise ValueError(
                    f"The trainer would ignore the optimizer's {name}, which only its "
                    "apply() applies: build it without."
                )
        self.model = model
        self.optimizer = optimizer
        self.micro_batches = micro_batches
        self.clip_norm = clip_norm
        self.loss = loss
        self.accuracy = accuracy
        self.average_decay = average_decay
        self.strategy = strategy or tf.distribute.get_strategy()
        self._compiled = tf.function(jit_compile=jit_compile, autograph=False)
        trained = model.trainable_variables
        scales = rate_scales or {}
        self.rate_scales = [scales.get(variable.path, 1.0) for variable in trained]
        with self.strategy.scope():
            optimizer.build(trained)
            self.averages = [
                keras.Variable(
                    ops.convert_to_numpy(variable),
                    trainable=False,
                    name=f"{variable.path.replace('/', '_')}_average",
                )
                for variable in (trained if average_decay else ())
            ]
            is_half = model.compute_dtype == "float16"
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
        trained = self.model.trainable_variables
        for average, weight in zip(self.averages, trained, strict=False):
            kept = ops.convert_to_numpy(weight)
            weight.assign(ops.convert_to_numpy(average))
            average.assign(kept)

    # No control flow for AutoGraph, whose conversion takes a second of each start.
    @tf.function(autograph=False)
    def step(self, inputs, labels):
        """Takes one step on tensors (batch, ...), or on distributed ones.

        Returns a dict of float32 scalars on the device: `loss`, `accuracy`,
        `gradient_norm` (before the clip), `learning_rate`; in float16 also
        `loss_scale`, where a step whose gradients overflow changes nothing and has
        norm 0.
        """
        # The same on every device.
        return self.first_device(self.strategy.run(self._step, (inputs, labels)))

    def fetch(self, metrics):
        """Returns the dicts of several steps with floats, in one transfer."""
        values = tf.stack([value for one in metrics for value in one.values()])
        rows = tf.reshape(values, (len(metrics), -1)).numpy().tolist()
        return [
            dict(zip(one, row, strict=True))
            for one, row in zip(metrics, rows, strict=True)
        ]

    def first_device(self, values):
        """Returns what the first device of this host has of distributed values."""
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], values
        )

    def _step(self, inputs, labels):
        """The step on each device."""
        context = tf.distribute.get_replica_context()
        batch_size = _batch_size(inputs) * context.num_replicas_in_sync
        sums = self._compiled(self._accumulate)(inputs, labels, batch_size)
        if context.num_replicas_in_sync > 1:
            flat = tf.nest.flatten(sums)
            flat = context.all_reduce(tf.distribute.ReduceOp.SUM, flat, _PIECES)
            sums = tf.nest.pack_sequence_as(sums, flat)
        gradients, is_finite, metrics = self._finish(sums)
        context.merge_call(self._update, (gradients, is_finite))
        return metrics

    def _finish(self, sums):
        """Returns clipped gradients, whether they are finite, and the metrics."""
        gradients, loss, accuracy = sums
        metrics = {"loss": loss, "accuracy": accuracy}
        if self.loss_scale:
            gradients = self.loss_scale.unscaled(gradients)
        gradients, norm = self._clip(gradients)
        is_finite = ops.isfinite(norm)
        if self.loss_scale:
            metrics["loss_scale"] = self.loss_scale.scaled(1.0)
            norm = ops.where(is_finite, norm, 0.0)
        metrics["gradient_norm"] = norm
        metrics["learning_rate"] = ops.cast(self.optimizer.learning_rate, "float32")
        return gradients, is_finite, metrics

    def _clip(self, gradients):
        norm = tf.linalg.global_norm(gradients)
        if self.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm, norm)
        return gradients, norm

    def _decay(self):
        """Returns the decay of the averages at this step."""
        # A smaller one at first, or the initial weights would dominate.
        steps = ops.cast(self.optimizer.iterations, "float32")
        return ops.minimum(self.average_decay, (1.0 + steps) / (10.0 + steps))

    def _update(self, strategy, gradients, is_finite):
        """Updates the variables of all devices; `Optimizer.apply` would sum again."""
        rate, variables = self.optimizer.learning_rate, self.model.trainable_variables
        averages = self.averages or [None] * len(variables)
        for variable, gradient, scale, average in zip(
            variables, gradients, self.rate_scales, averages, strict=True
        ):
            arguments = (gradient, rate * scale, is_finite, average)
            strategy.extended.update(
                variable.value, self._update_one, arguments, group=False
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
                average.value.assign_sub((1.0 - self._decay()) * (average - weight))

        if self.loss_scale:
            tf.cond(is_finite, update, lambda: None)
        else:
            update()

    def _accumulate(self, inputs, labels, batch_size):
        if self.micro_batches == 1:
            return self._shares(inputs, labels, batch_size)
        parts = tf.nest.map_structure(self._parts, (inputs, labels))

        def add(index, sums):
            taken = tf.nest.map_structure(lambda whole: whole[index], parts)
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

    def _parts(self, whole):
        rows = whole.shape[0] // self.micro_batches
        return tf.reshape(whole, [self.micro_batches, rows, *whole.shape[1:]])

    def _shares(self, inputs, labels, batch_size):
        """Returns what these examples add to the gradients, loss and accuracy."""
        count = tf.cast(batch_size, "float32")
        with tf.GradientTape() as tape:
            logits = self.model(inputs, training=True)
            losses = self.loss(logits, labels)
            # Divided here, not in each gradient, which would copy them all.
            loss = tf.reduce_sum(losses) / count
            target = self.loss_scale.scaled(loss) if self.loss_scale else loss
        gradients = tape.gradient(
            target,
            [variable.value for variable in self.model.trainable_variables],
            # Of variables that the loss does not use, as JAX has it.
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return gradients, loss, tf.reduce_sum(self.accuracy(logits, labels)) / count

    @tf.function(autograph=False, reduce_retracing=True)
    def answers(self, inputs, labels):
        """Returns labels, float32 logits and losses per example, of all hosts.

        They are on the device, and not waited for; the loss of `NO_LABEL` is that of
        label 0.
        """

        def answers(inputs, labels):
            logits = self.model(inputs, training=False)
            return labels, logits, self._losses(logits, labels)

        found = self.strategy.run(self._compiled(answers), (inputs, labels))
        return tuple(map(self._gathered, found))

    def _losses(self, logits, labels):
        return self.loss(logits, ops.where(labels == NO_LABEL, 0, labels))

    def gather(self, values):
        """Returns distributed values of all hosts as one NumPy array (batch, ...)."""
        return self._gathered(values).numpy()

    @tf.function(autograph=False, reduce_retracing=True)
    def _gathered(self, values):
        if self.strategy.num_replicas_in_sync > 1:
            values = self.strategy.gather(values, axis=0)
        return values


def one_behind(items):
    """Yields items, each once the next is made: devices work on that meanwhile."""
    for item, _ in itertools.pairwise(itertools.chain(items, [None])):
        yield item


def _batch_size(inputs):
    return tf.shape(tf.nest.flatten(inputs)[0])[0]
