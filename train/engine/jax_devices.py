"""Which devices a run uses where Keras runs on JAX."""

import itertools

import keras
import tensorflow as tf

from train.common.errors import RunError
from train.data.pipeline import Share
from train.engine.distribution import Devices
from train.engine.jax_trainer import JaxTrainer


class JaxDevices(Devices):
    """The devices of a run, of one machine, under the JAX backend.

    Args:
        strategy: `keras.distribution.DataParallel`.
        host: int, 0.

    Example:

    >>> start("one").count  # doctest: +SKIP
    1
    """

    @property
    def count(self):
        """How many devices compute side by side."""
        return self.strategy.device_mesh.devices.size

    def trainer(self, model, optimizer, **settings):
        """Returns a `train.engine.jax_trainer.JaxTrainer` on these devices.

        Args:
            model: `keras.Model`, made in the scope.
            optimizer: `keras.optimizers.Optimizer`.
            **settings: of the trainer.

        Raises:
            RunError: the model computes in what the devices do not.
        """
        is_cpu = self.strategy.device_mesh.devices.flat[0].startswith("cpu")
        if is_cpu and model.compute_dtype == "float16":
            raise RunError(
                "JAX has no float16 attention on processors: pass "
                "--precision=mixed_bfloat16 or float32, or use a GPU."
            )
        return JaxTrainer(model, optimizer, strategy=self.strategy, **settings)

    def batches(self, make):
        """Yields batches that are spread over the devices.

        Args:
            make: as in `Devices`.

        Yields:
            What `train.engine.jax_trainer.JaxTrainer` takes.
        """
        parts = make(share=Share(devices=self.count)).as_numpy_iterator()
        ahead = None
        while batch := list(itertools.islice(parts, self.count)):
            # On its way while the devices work on the one before.
            batch = keras.tree.map_structure(self._spread, *batch)
            if ahead is not None:
                yield ahead
            ahead = batch
        if ahead is not None:
            yield ahead

    def first(self, values):
        """Returns what the first device has of spread values."""
        return keras.tree.map_structure(
            lambda value: value.addressable_shards[0].data, values
        )

    def _spread(self, *parts):
        """Makes one array of a part for each device."""
        import jax

        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        sharding = self.strategy.get_data_layout(shape).backend_layout
        placed = [
            jax.device_put(part, device)
            for part, device in zip(parts, sharding.mesh.devices.flat, strict=True)
        ]
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)


def start(name="auto"):
    """Gets the devices ready, and keeps TensorFlow, which reads the data, off them.

    Args:
        name: `"one"` device; `"mirrored"`, all of this machine, two at least; `"tpu"`,
            all chips of this machine; or `"auto"`, all that JAX sees.

    Returns:
        `JaxDevices`.

    Raises:
        RunError: there are no such devices.

    Source:
        https://keras.io/guides/distribution
    """
    if name == "multiworker":
        raise RunError(
            "--strategy=multiworker is TensorFlow's: unset KERAS_BACKEND to train on "
            "several machines, or with KERAS_BACKEND=jax pass --strategy=mirrored on "
            "one."
        )
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
    if name == "one":
        devices = devices[:1]
    return JaxDevices(keras.distribution.DataParallel(devices=devices))
