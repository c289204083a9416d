"""Which examples of every batch a host prepares, where several train one model."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Share:
    """What one host prepares of every batch: the examples of its devices.

    Of a batch, device 0 has the first examples, device 1 the next, and so on; the
    hosts have equally many devices.

    Args:
        host: The number of the host.
        hosts: How many there are.
        devices: How many there are on all hosts.

    Example:

    >>> Share(host=1, hosts=2, devices=4).start(64)
    32
    """

    host: int = 0
    hosts: int = 1
    devices: int = 1

    def start(self, batch_size: int) -> int:
        """Returns the place in the batch of this host's first example."""
        return self.host * (batch_size // self.hosts)

    def of(self, numbered: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        """Keeps this host's part of (number, example), numbered from a batch's start.

        Args:
            numbered: The examples of all hosts.
            batch_size: Of all devices together.

        Raises:
            ValueError: the devices cannot share a batch equally.
        """
        if batch_size % self.devices:
            raise ValueError(
                f"batch_size={batch_size} cannot be shared equally by {self.devices} "
                "devices"
            )
        if self.hosts == 1:
            return numbered
        start = self.start(batch_size)

        def is_here(number, *_):
            place = number % batch_size
            return (place >= start) & (place < start + batch_size // self.hosts)

        return numbered.filter(is_here)


ALL = Share()
