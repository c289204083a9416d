"""The devices of a run under TensorFlow, and how they share a batch."""

import contextlib
import dataclasses
import json
import os
import time

import tensorflow as tf

from train.common.errors import RunError
from train.data.pipeline import Share
from train.engine.trainer import Trainer
from zoo import machine

# What TensorFlow raises on the hosts that are left.
_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.DeadlineExceededError, tf.errors.InternalError),
)
# A step is products for the most part, and casts what is not.
_GAIN = 1.2
_EXAMPLE = (
    """'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, """
    """"task": {"type": "worker", "index": 0}}'"""
)


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run under TensorFlow; `host` numbers the run's processes."""

    strategy: tf.distribute.Strategy
    host: int = 0

    @property
    def count(self):
        """How many devices compute side by side, on all hosts."""
        return self.strategy.num_replicas_in_sync

    @property
    def is_chief(self):
        """Whether this process writes the files of the run and prints."""
        return self.host == 0

    @property
    def has_hosts(self):
        """Whether other processes take part."""
        return isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy)

    @property
    def is_cpu(self):
        """Whether the processor computes, in the memory of this machine."""
        return not any(map(tf.config.list_logical_devices, ("GPU", "TPU")))

    def bfloat16(self):
        """Returns whether the devices multiply in bfloat16, and why so, in words."""
        if self.is_cpu:
            name = machine.cpu_name()
            if not machine.computes_bfloat16():
                return False, f"as this {name} has no instructions for bfloat16"
            # Some have them, and take longer than in float32.
            gain = bfloat16_gain()
            return gain >= _GAIN, (
                f"as this {name} multiplies in bfloat16 at {gain:.2f} times the speed "
                f"of float32 (bfloat16 from {_GAIN} on)"
            )
        gpus = map(
            tf.config.experimental.get_device_details,
            tf.config.list_physical_devices("GPU"),
        )
        return of_accelerators([gpu.get("compute_capability") for gpu in gpus])

    def print(self, line):
        """Prints a line on the first host."""
        if self.is_chief:
            print(line)

    def trainer(self, model, optimizer, **settings):
        """Returns a `Trainer` of a model that was made in the strategy's scope."""
        # XLA makes a step slower on processors, and compiles on TPUs anyway.
        return Trainer(
            model,
            optimizer,
            strategy=self.strategy,
            jit_compile=_has_gpu() or None,
            **settings,
        )

    def all_gather(self, value):
        """Returns the int of every device's host, a list, from that of this host."""
        if not self.has_hosts:
            return [value] * self.count
        return self._all_gathered(tf.constant([value])).numpy().tolist()

    @tf.function(autograph=False)
    def _all_gathered(self, value):
        return self.strategy.gather(self.strategy.run(lambda: value), axis=0)

    @contextlib.contextmanager
    def explain_lost_worker(self):
        """Raises a `RunError` where another process of the run ended."""
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

    def micro_batches(self, batch_size, parts):
        """Returns the micro-batches per device for so many `parts` of the whole batch.

        Raises a `RunError` where the batch cannot be shared equally.
        """
        count = -(-parts // self.count)
        if batch_size % (self.count * count):
            raise RunError(
                f"A batch of {batch_size} cannot be shared equally by {self.count} "
                f"devices in {count} parts each: pass a --batch_size that is a "
                f"multiple of {self.count * count}."
            )
        return count

    def batches(self, make):
        """Returns batches distributed over the devices.

        `make` takes a `train.data.pipeline.Share` as `share` and returns a
        `tf.data.Dataset`.
        """
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
            # Strategies of several devices do so themselves.
            device = tf.config.list_logical_devices("GPU")[0].name
            batches = batches.apply(tf.data.experimental.prefetch_to_device(device))
        return batches


def bfloat16_gain():
    """Returns how much faster a product is in bfloat16, in half a second."""
    times = {tf.float32: [], tf.bfloat16: []}
    multiply = tf.function(tf.matmul, autograph=False)
    # The first product of an MLP of ViT-B/16 on images of five.
    factors = tf.ones((985, 768)), tf.ones((768, 3072))
    for turn in range(6):
        for dtype, found in times.items():
            left, right = (tf.cast(factor, dtype) for factor in factors)
            started = time.perf_counter()
            # What is fetched has been computed.
            multiply(left, right)[0, 0].numpy()
            if turn:
                found.append(time.perf_counter() - started)
    return min(times[tf.float32]) / min(times[tf.bfloat16])


def _has_gpu():
    return bool(tf.config.list_logical_devices("GPU"))


def of_accelerators(capabilities):
    """Returns what `Devices.bfloat16` does.

    `capabilities` are those of GPUs, (major, minor) or None of other makers' GPUs; of
    TPUs there are none.

    Source: NVIDIA, CUDA C++ Programming Guide, compute capabilities.
    """
    if not capabilities:
        return True, "as TPUs multiply in it"
    if None in capabilities:
        return False, "as it is not known whether these GPUs multiply in bfloat16"
    major, minor = min(capabilities)
    reason = f"as GPUs of compute capability {major}.{minor}"
    if major >= 8:
        return True, f"{reason} multiply in it"
    return False, f"{reason} do not multiply in bfloat16, which 8.0 does"


def start(name="auto"):
    """Returns the devices of `train.engine.devices.start`.

    Source:
        https://www.tensorflow.org/guide/distributed_training
    """
    if name == "auto":
        name = _detected()
    if name == "one":
        return Devices(tf.distribute.get_strategy())
    starts = {"mirrored": _mirrored, "multiworker": _multiworker, "tpu": _tpu}
    return starts[name]()


def _detected():
    if "TPU_NAME" in os.environ:
        return "tpu"
    if has_other_workers():
        return "multiworker"
    return "mirrored" if _count_local_devices() > 1 else "one"


def has_other_workers():
    """Returns whether TF_CONFIG names several machines."""
    return "TF_CONFIG" in os.environ and len(_cluster()[1]) > 1


def _mirrored():
    kinds = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    devices = next([device.name for device in found] for found in kinds if found)
    if len(devices) < 2:
        raise RunError(
            "--strategy=mirrored needs two devices at least, and TensorFlow sees "
            f"{devices[0]} alone: check the driver and CUDA_VISIBLE_DEVICES, or pass "
            "--strategy=one."
        )
    return Devices(tf.distribute.MirroredStrategy(devices))


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
    return Devices(strategy, host)


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
    return Devices(tf.distribute.TPUStrategy(resolver))


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
