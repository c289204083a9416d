"""The training step and the devices of a run on TensorFlow."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from train.common.errors import RunError
from train.data.pipeline import Share
from train.engine import bfloat16
from train.engine.step import Devices, Trainer

# TensorFlow raises these on the remaining hosts when one is lost.
_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.DeadlineExceededError, tf.errors.InternalError),
)
# Sum gradients over devices in a few large pieces.
_PIECES = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=50 * 2**20)
# Any number but 0 gives each device a random stream of its own.
_SEEDS_APART = 1_000_003
_EXAMPLE = (
    """'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, """
    """"task": {"type": "worker", "index": 0}}'"""
)


class TensorFlowTrainer(Trainer):
    """The step on TensorFlow; with `jit_compile` XLA compiles model and gradients."""

    def __init__(
        self, model, optimizer, *, strategy=None, jit_compile=None, **settings
    ):
        strategy = strategy or tf.distribute.get_strategy()
        super().__init__(model, optimizer, strategy=strategy, **settings)
        self._compiled = tf.function(jit_compile=jit_compile, autograph=False)

    def spread_seeds(self) -> None:
        # The first device keeps its state.
        if self.strategy.num_replicas_in_sync == 1:
            return
        states = [
            variable
            for variable in self.model.non_trainable_variables
            if variable.path.endswith("seed_generator_state")
        ]

        def spread() -> None:
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, "int64")
            for state in states:
                offset = tf.stack([_SEEDS_APART * number, 0])
                state.assign(state + tf.cast(offset, state.dtype))

        self.strategy.run(spread)

    # AutoGraph would take a second and find no control flow to convert.
    @tf.function(autograph=False)
    def step(self, inputs: Any, labels: Any) -> dict:
        # Metrics are the same on every device.
        return self.first_device(self.strategy.run(self._step, (inputs, labels)))

    def fetch(self, metrics: Sequence[dict]) -> list:
        values = tf.stack([value for step in metrics for value in step.values()])
        rows = tf.reshape(values, (len(metrics), -1)).numpy().tolist()
        return [
            dict(zip(step, row, strict=True))
            for step, row in zip(metrics, rows, strict=True)
        ]

    def first_device(self, values: Any) -> Any:
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

    def _clip(self, gradients):
        norm = tf.linalg.global_norm(gradients)
        if self.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm, norm)
        return gradients, norm

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
            finite = strategy.experimental_local_results(is_finite)[0]
            self.loss_scale.update(finite)
            self.optimizer.iterations.assign_add(tf.cast(finite, "int32"))
        else:
            self.optimizer.iterations.assign_add(1)

    def _update_one(self, weight, gradient, rate, is_finite, average):
        def update() -> None:
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

        def add(index: tf.Tensor, sums: tuple) -> tuple:
            taken = tf.nest.map_structure(lambda whole: whole[index], parts)
            more = self._shares(*taken, batch_size)
            return index + 1, tf.nest.map_structure(tf.add, sums, more)

        variables = self.model.trainable_variables
        zeros = [tf.zeros(variable.shape) for variable in variables], 0.0, 0.0
        # Run one at a time, or the activations of all are alive at once.
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
            # Divide the loss: dividing each gradient would copy them all.
            loss = tf.reduce_sum(losses) / count
            target = self.loss_scale.scaled(loss) if self.loss_scale else loss
        gradients = tape.gradient(
            target,
            [variable.value for variable in self.model.trainable_variables],
            # As in JAX, variables that the loss does not use have gradients of zero.
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return gradients, loss, tf.reduce_sum(self.accuracy(logits, labels)) / count

    @tf.function(autograph=False, reduce_retracing=True)
    def answers(self, inputs: Any, labels: Any) -> tuple:
        def answers(inputs: Any, labels: Any) -> tuple:
            logits = self.model(inputs, training=False)
            return labels, logits, self._losses(logits, labels)

        computed = self.strategy.run(self._compiled(answers), (inputs, labels))
        return tuple(map(self._gathered, computed))

    def gather(self, values: Any) -> np.ndarray:
        return self._gathered(values).numpy()

    @tf.function(autograph=False, reduce_retracing=True)
    def _gathered(self, values):
        if self.strategy.num_replicas_in_sync > 1:
            values = self.strategy.gather(values, axis=0)
        return values


def _batch_size(inputs):
    return tf.shape(tf.nest.flatten(inputs)[0])[0]


class TensorFlowDevices(Devices):
    """The devices of a run under TensorFlow, and how they share a batch."""

    @property
    def count(self) -> int:
        return self.strategy.num_replicas_in_sync

    @property
    def has_hosts(self) -> bool:
        return isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy)

    @property
    def is_cpu(self) -> bool:
        return not any(map(tf.config.list_logical_devices, ("GPU", "TPU")))

    def bfloat16(self) -> tuple[bool, str]:
        if self.is_cpu:
            return bfloat16.of_processor()
        gpus = map(
            tf.config.experimental.get_device_details,
            tf.config.list_physical_devices("GPU"),
        )
        return bfloat16.of_accelerators([gpu.get("compute_capability") for gpu in gpus])

    def trainer(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, **settings: Any
    ) -> TensorFlowTrainer:
        # XLA makes a step slower on processors, and compiles on TPUs anyway.
        return TensorFlowTrainer(
            model,
            optimizer,
            strategy=self.strategy,
            jit_compile=_has_gpu() or None,
            **settings,
        )

    def all_gather(self, value: int) -> list:
        if not self.has_hosts:
            return super().all_gather(value)
        return self._all_gathered(tf.constant([value])).numpy().tolist()

    @tf.function(autograph=False)
    def _all_gathered(self, value):
        return self.strategy.gather(self.strategy.run(lambda: value), axis=0)

    @contextlib.contextmanager
    def explain_lost_worker(self) -> Iterator[None]:
        try:
            yield
        except _LOST as error:
            if not self.has_hosts:
                raise
            raise RunError(
                "Another worker of this run ended or cannot be reached "
                f"({error.message}): start the command again on each of them, it goes "
                "on from the last checkpoint."
            ) from error

    def batches(self, make: Callable[..., tf.data.Dataset]) -> Any:
        batches = self.strategy.distribute_datasets_from_function(
            lambda context: make(
                share=Share(
                    context.input_pipeline_id,
                    context.num_input_pipelines,
                    context.num_replicas_in_sync,
                    filled=context.num_replicas_in_sync > 1 or _has_gpu(),
                )
            )
        )
        if isinstance(batches, tf.data.Dataset) and _has_gpu():
            # Strategies of several devices prefetch by themselves.
            device = tf.config.list_logical_devices("GPU")[0].name
            batches = batches.apply(tf.data.experimental.prefetch_to_device(device))
        return batches


def _has_gpu():
    return bool(tf.config.list_logical_devices("GPU"))


def start(name: str = "auto") -> Any:
    """Returns the devices of `train.engine.devices.start`.

    Source:
        https://www.tensorflow.org/guide/distributed_training
    """
    if name == "auto":
        name = _detected()
    if name == "one":
        return TensorFlowDevices(tf.distribute.get_strategy())
    starts = {"mirrored": _mirrored, "multiworker": _multiworker, "tpu": _tpu}
    return starts[name]()


def _detected():
    if "TPU_NAME" in os.environ:
        return "tpu"
    if has_other_workers():
        return "multiworker"
    return "mirrored" if _count_local_devices() > 1 else "one"


def has_other_workers() -> bool:
    """Returns whether TF_CONFIG names several machines."""
    return "TF_CONFIG" in os.environ and len(_cluster()[1]) > 1


def _mirrored():
    kinds = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    devices = next(
        [device.name for device in same_kind] for same_kind in kinds if same_kind
    )
    if len(devices) < 2:
        raise RunError(
            "--strategy=mirrored needs two devices at least, and TensorFlow sees "
            f"{devices[0]} alone: check the driver and CUDA_VISIBLE_DEVICES, or pass "
            "--strategy=one."
        )
    return TensorFlowDevices(tf.distribute.MirroredStrategy(devices))


def _multiworker():
    config, workers = _cluster()
    try:
        host = int(config["task"]["index"])
        if config["task"]["type"] == "worker" and "chief" in config["cluster"]:
            host += 1
        if not 0 <= host < len(workers):
            raise ValueError(f"task {host} of {len(workers)}")
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (KeyError, TypeError, ValueError, tf.errors.OpError) as error:
        raise RunError(
            f"The workers {', '.join(workers)} did not come together ({error}): start "
            "the same command on each of them, with a TF_CONFIG such as "
            f"{_EXAMPLE}."
        ) from error
    return TensorFlowDevices(strategy, host)


def _tpu():
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            os.environ.get("TPU_NAME", "")
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise RunError(
            f"No TPU answers ({error}): set TPU_NAME to its name, or to local on a "
            "machine that has one."
        ) from error
    return TensorFlowDevices(tf.distribute.TPUStrategy(resolver))


def _count_local_devices():
    """Counts the devices without starting TensorFlow, which `start` sets up."""
    if gpus := tf.config.list_physical_devices("GPU"):
        return len(gpus)
    [cpu] = tf.config.list_physical_devices("CPU")
    return len(tf.config.get_logical_device_configuration(cpu) or [cpu])


def _cluster():
    """Returns the parsed TF_CONFIG, and its workers, the chief first."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        cluster = config["cluster"]
        return config, [*cluster.get("chief", []), *cluster["worker"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"TF_CONFIG is {text!r}, which names no workers ({error!r}): on each "
            f"machine set it as in {_EXAMPLE}."
        ) from error
