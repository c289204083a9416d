"""The training step and the devices of a run on JAX."""

import collections
import contextlib
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np
import tensorflow as tf
from jax.experimental import multihost_utils
from keras import ops

from train.common.errors import RunError, first_line
from train.data.pipeline import Share
from train.engine import bfloat16, layouts
from train.engine.checkpoints import Checkpoints
from train.engine.sharded_checkpoints import ShardedCheckpoints
from train.engine.step import Devices, Trainer, one_behind
from zoo.common.safe_text import counted

# The environment variable by which JAX finds the first of several processes.
_COORDINATOR = "JAX_COORDINATOR_ADDRESS"
# Seconds in which all processes of a run must have started.
_PATIENCE = 300


class JaxTrainer(Trainer):
    """The training step as one compiled function of all variables.

    The function sees the whole batch; XLA shares the work among the devices that hold
    parts of it and of the variables, and adds their gradients up. Random numbers are
    those of the whole batch too, however many devices there are. The old values of the
    variables leave their memory to the new ones. The strategy is a
    `keras.distribution.DataParallel` or a `train.engine.layouts.ModelParallel`.

    Source:
        https://keras.io/guides/writing_a_custom_training_loop_in_jax and
        https://keras.io/guides/distribution.
    """

    ahead = 1

    def __post_init__(self, rate_scales):
        super().__post_init__(rate_scales)
        # Trainable, non-trainable, optimizer state with averages, loss scale.
        self._groups = [
            self.model.trainable_variables,
            self.model.non_trainable_variables,
            self.optimizer.variables + self.averages,
            self.loss_scale.variables if self.loss_scale else [],
        ]
        self._shardings = [list(map(self._sharding, group)) for group in self._groups]
        everywhere = self._sharding(self.optimizer.iterations)
        self._compiled_step = jax.jit(
            self._step, donate_argnums=0, out_shardings=(self._shardings, everywhere)
        )
        # All hosts get the answers of all.
        self._compiled_answers = jax.jit(self._answers, out_shardings=everywhere)
        self._under_way = collections.deque(maxlen=2)

    def spread_seeds(self) -> None:
        """Does nothing: a random number belongs to an example, not to a device."""

    def step(self, inputs: Any, labels: Any) -> dict:
        if len(self._under_way) == 2:
            # Wait: each unfinished step holds its batch in memory.
            jax.block_until_ready(self._under_way[0])
        state, metrics = self._compiled_step(self._state(), inputs, labels)
        self._under_way.append(metrics)
        for variable, value in self._paired(state):
            variable.assign(value)
        return metrics

    def compiled_text(self, inputs: Any, labels: Any) -> str:
        """Returns the program that XLA makes of a step, as HLO text."""
        lowered = self._compiled_step.lower(self._state(), inputs, labels)
        return lowered.compile().as_text()

    def fetch(self, metrics: Sequence[dict]) -> list:
        return jax.tree.map(float, jax.device_get(metrics))

    def _sharding(self, variable):
        return self.strategy.get_variable_layout(variable).backend_layout

    def _average(self, variable):
        # The step gives up the memory of either.
        value = jax.numpy.copy(variable.value)
        layout = self.strategy.get_variable_layout(variable)
        return super()._average(variable, value, layout)

    def _exchange_averages(self):
        for average, weight in zip(self.averages, self._groups[0], strict=False):
            kept = weight.value
            weight.assign(average.value)
            average.assign(kept)

    def _state(self, groups=4):
        """Returns the values of the first groups of variables, as the step has them."""
        # On one device Keras leaves values under a sharding of another name, for which
        # the step would be compiled again.
        return [
            [
                value
                if (value := variable.value).sharding == sharding
                else jax.device_put(value, sharding)
                for variable, sharding in zip(group, shardings, strict=True)
            ]
            for group, shardings in zip(
                self._groups[:groups], self._shardings[:groups], strict=True
            )
        ]

    def _paired(self, state):
        """Returns pairs of all variables and their values."""
        chained = itertools.chain.from_iterable
        return list(zip(chained(self._groups), chained(state), strict=True))

    def _step(self, state, inputs, labels):
        trained, fixed, kept, _ = state
        with keras.StatelessScope(self._paired(state)) as scope:
            fixed, sums = self._accumulate(trained, fixed, inputs, labels)
            gradients, is_finite, metrics = self._finish(sums)
            if self.loss_scale:
                self.loss_scale.update(is_finite)
            self._update(gradients)
            trained, _, kept, scale = (
                [scope.get_current_value(variable) for variable in group]
                for group in self._groups
            )
        if self.loss_scale:
            choose = functools.partial(ops.where, is_finite)
            trained, kept = (
                list(map(choose, new, old))
                for new, old in zip((trained, kept), (state[0], state[2]), strict=True)
            )
        return [trained, fixed, kept, scale], metrics

    def _clip(self, gradients):
        norm = ops.sqrt(sum(ops.sum(ops.square(gradient)) for gradient in gradients))
        if self.clip_norm is not None:
            factor = self.clip_norm / ops.maximum(norm, self.clip_norm)
            gradients = [factor * gradient for gradient in gradients]
        return gradients, norm

    def _update(self, gradients):
        rate, variables = self.optimizer.learning_rate, self._groups[0]
        for gradient, variable, scale in zip(
            gradients, variables, self.rate_scales, strict=True
        ):
            self.optimizer.update_step(gradient, variable, rate * scale)
        for average, variable in zip(self.averages, variables, strict=False):
            average.assign_sub((1.0 - self._decay()) * (average - variable))
        self.optimizer.iterations.assign_add(1)

    def _accumulate(self, trained, fixed, inputs, labels):
        count = _batch_size(inputs)
        if self.micro_batches == 1:
            return self._shares(trained, fixed, inputs, labels, count)

        def add(so_far: tuple, part: tuple) -> tuple:
            fixed, sums = so_far
            fixed, more = self._shares(trained, fixed, *part, count)
            return (fixed, jax.tree.map(ops.add, sums, more)), None

        zeros = [ops.zeros_like(value) for value in trained], 0.0, 0.0
        parts = jax.tree.map(self._parts, (inputs, labels))
        sums, _ = jax.lax.scan(add, (fixed, zeros), parts)
        return sums

    def _parts(self, whole):
        """Cuts an array into micro-batches, each of which has rows on all devices."""
        rows = whole.shape[0] // self.micro_batches
        parts = ops.reshape(whole, (rows, self.micro_batches, *whole.shape[1:]))
        parts = ops.swapaxes(parts, 0, 1)
        axes = [None, self.strategy.batch_dim_name, *[None] * (parts.ndim - 2)]
        layout = keras.distribution.TensorLayout(axes, self.strategy.device_mesh)
        return keras.distribution.distribute_tensor(parts, layout)

    def _shares(self, trained, fixed, inputs, labels, count):
        """Returns the new non-trainable values, and what these examples add."""

        def target(trained: list) -> tuple:
            logits, after = self.model.stateless_call(
                trained, fixed, inputs, training=True
            )
            loss = ops.sum(self.loss(logits, labels)) / count
            accuracy = ops.sum(self.accuracy(logits, labels)) / count
            scaled = self.loss_scale.scaled(loss) if self.loss_scale else loss
            return scaled, (after, loss, accuracy)

        gradients, (after, loss, accuracy) = jax.grad(target, has_aux=True)(trained)
        return after, (gradients, loss, accuracy)

    def answers(self, inputs: Any, labels: Any) -> tuple:
        return self._compiled_answers(*self._state(2), inputs, labels)

    def _answers(self, trained, fixed, inputs, labels):
        logits, _ = self.model.stateless_call(trained, fixed, inputs, training=False)
        return labels, logits, self._losses(logits, labels)

    def first_device(self, values: Any) -> Any:
        return keras.tree.map_structure(
            lambda value: value.addressable_shards[0].data, values
        )

    def gather(self, values: Any) -> np.ndarray:
        return multihost_utils.process_allgather(values, tiled=True)

    def whole_weights(self) -> list | None:
        values = [variable.value for variable in self.model.variables]
        if all(value.is_fully_addressable for value in values):
            return None
        weights = []
        for value in values:
            whole = self.gather(value)
            if jax.process_index() == 0:
                weights.append(whole)
        return weights


def _batch_size(inputs):
    return keras.tree.flatten(inputs)[0].shape[0]


class JaxDevices(Devices):
    """The devices of a run under JAX."""

    @property
    def count(self) -> int:
        return self.strategy.device_mesh.shape[0]

    @property
    def description(self) -> str:
        if not self.shares_model:
            return super().description
        parts, cuts = self.strategy.device_mesh.shape
        return f"on {counted(parts * cuts, 'device')}, data:{parts},model:{cuts}"

    @property
    def shares_model(self) -> bool:
        return isinstance(self.strategy, layouts.ModelParallel)

    @property
    def has_hosts(self) -> bool:
        return jax.process_count() > 1

    def on_processor(self) -> contextlib.AbstractContextManager:
        return jax.default_device(jax.local_devices(backend="cpu")[0])

    def wait(self) -> None:
        # JAX aborts the first process where others have waited for its end too long.
        self.all_gather(0)

    def checkpoints(self, folder: str | os.PathLike) -> Checkpoints:
        if self.shares_model:
            return ShardedCheckpoints(folder)
        return super().checkpoints(folder)

    def all_gather(self, value: int) -> list:
        if not self.has_hosts:
            return super().all_gather(value)
        return multihost_utils.process_allgather(np.asarray(value)).tolist()

    @contextlib.contextmanager
    def explain_lost_worker(self) -> Iterator[None]:
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if not self.has_hosts or "RESOURCE_EXHAUSTED" in str(error):
                raise
            raise RunError(
                "Another process of this run ended or cannot be reached "
                f"({first_line(error)}): start the command again for each of them, it "
                "goes on from the last checkpoint."
            ) from error

    @property
    def is_cpu(self) -> bool:
        return self.strategy.device_mesh.devices.flat[0].startswith("cpu")

    def bfloat16(self) -> tuple[bool, str]:
        if self.is_cpu:
            # It was as fast as float32 on an AVX-512 processor with bfloat16.
            return False, "as JAX on processors gains nothing by bfloat16"
        names = [
            device.compute_capability
            for device in jax.devices()
            if device.platform == "gpu"
        ]
        # NVIDIA reports versions such as 9.0, AMD names such as gfx942.
        matches = [re.fullmatch(r"([0-9]+)\.([0-9]+)", name) for name in names]
        return bfloat16.of_accelerators(
            [match and (int(match[1]), int(match[2])) for match in matches]
        )

    def trainer(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, **settings: Any
    ) -> JaxTrainer:
        if self.shares_model:
            layouts.check(model, self.strategy.device_mesh)
        if self.is_cpu and model.compute_dtype == "float16":
            raise RunError(
                "JAX has no float16 attention on processors: pass "
                "--precision=mixed_bfloat16 or float32, or use a GPU."
            )
        return JaxTrainer(model, optimizer, strategy=self.strategy, **settings)

    def batches(self, make: Callable[..., tf.data.Dataset]) -> Iterator:
        own = len(self.own_places)
        share = Share(self.own_places[0] // own, self.count // own, self.count, True)
        parts = make(share=share).as_numpy_iterator()
        batches = iter(lambda: list(itertools.islice(parts, own)), [])
        # Transfer the next batch while the devices work on this one.
        yield from one_behind(
            keras.tree.map_structure(self._spread, *batch) for batch in batches
        )

    def _spread(self, *parts):
        """Makes one array of a part for each place of this host in a batch."""
        rows = sum(map(len, parts)) * self.count // len(parts)
        shape = (rows, *parts[0].shape[1:])
        sharding = self.strategy.get_data_layout(shape).backend_layout
        placed = [
            jax.device_put(part, device)
            for part, place in zip(parts, self.own_places, strict=True)
            for device in self._places[place]
            if device.process_index == self.host
        ]
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)

    @property
    def _places(self):
        """The devices of each part of a batch, an array (parts, devices)."""
        mesh = self.strategy.device_mesh.backend_mesh
        return mesh.devices.reshape(self.count, -1)

    @functools.cached_property
    def own_places(self) -> list[int]:
        """The numbers of the parts of a batch that devices of this host compute."""
        hosts = [{device.process_index for device in row} for row in self._places]
        return [place for place, row in enumerate(hosts) if self.host in row]


def _join_processes():
    """Connects the processes of a run, which JAX's environment variables number."""
    try:
        count = int(os.environ["JAX_NUM_PROCESSES"])
        process = int(os.environ["JAX_PROCESS_ID"])
        # JAX aborts, with a message of its own, where one does not come.
        print(
            f"waiting for {count} processes at {os.environ[_COORDINATOR]}, "
            f"{_PATIENCE} s at most",
            file=sys.stderr,
        )
        jax.distributed.initialize(
            num_processes=count,
            process_id=process,
            initialization_timeout=_PATIENCE,
        )
    except (KeyError, ValueError, RuntimeError) as error:
        raise RunError(
            f"The processes of {_COORDINATOR} did not come together ({error!r}): start "
            f"the same command for each of them, with {_COORDINATOR}=HOST:PORT of "
            "process 0, JAX_NUM_PROCESSES and its own JAX_PROCESS_ID."
        ) from error


def start(name: str = "auto", mesh: str | None = None) -> JaxDevices:
    """Returns the devices of `train.engine.devices.start`; `"auto"`: all JAX sees.

    TensorFlow, which reads the data, is kept off them.
    """
    if name == "multiworker":
        raise RunError(
            "--strategy=multiworker is TensorFlow's: unset KERAS_BACKEND to train on "
            "several machines, or with KERAS_BACKEND=jax pass --strategy=mirrored or "
            "sharded."
        )
    if _COORDINATOR in os.environ:
        if name != "sharded":
            raise RunError(
                f"{_COORDINATOR} is set, and --strategy={name} is for one process: "
                "pass --strategy=sharded, or unset it."
            )
        _join_processes()
    for kind in ("GPU", "TPU"):
        if tf.config.list_physical_devices(kind):
            tf.config.set_visible_devices([], kind)
    try:
        devices = keras.distribution.list_devices()
    except RuntimeError as error:
        raise RunError(
            f"JAX has no device to run on ({error}): check its installation and "
            "JAX_PLATFORMS."
        ) from error
    if name == "mirrored" and len(devices) < 2:
        raise RunError(
            "--strategy=mirrored needs two devices at least, and JAX sees "
            f"{devices[0]} alone: check the driver and the installation of JAX, or "
            "pass --strategy=one."
        )
    if name == "tpu" and not devices[0].startswith("tpu"):
        raise RunError(
            f"--strategy=tpu needs a TPU, and JAX sees {devices[0]}: start the command "
            "on the machine that has it, with pip install 'jax[tpu]'."
        )
    if name == "sharded":
        return _sharded(mesh, devices)
    if name == "one":
        devices = devices[:1]
    return JaxDevices(keras.distribution.DataParallel(devices=devices))


def _sharded(mesh, devices):
    """Returns devices that share a model, by `--mesh`."""
    made = layouts.mesh_of(mesh, devices)
    model, local = made.shape[1], jax.local_device_count()
    if model % local and local % model:
        raise RunError(
            f"--mesh with {layouts.MODEL}:{model} does not fit processes of {local} "
            "devices: pass a multiple or a divisor of these."
        )
    given = JaxDevices(layouts.ModelParallel(made), jax.process_index())
    places, count = given.own_places, jax.process_count()
    are_neighbours = places == list(range(places[0], places[-1] + 1))
    if local * count != len(devices) or not are_neighbours:
        raise RunError(
            f"JAX does not list its {len(devices)} devices by process, as many in each "
            f"of {count}: start one process on each machine, with equal devices."
        )
    return given
