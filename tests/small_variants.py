"""The released variants made small: as wide, but two blocks deep.

For tests whose point is that a command or a cell runs, not what a model computes.
"""

import dataclasses
import os

from zoo.network import ARCHITECTURES

# With it in the environment, commands of a `ForkServer` have small variants.
ENVIRONMENT = {"SMALL_VARIANTS": "1"}
SMALL = {
    name: dataclasses.replace(
        row,
        num_layers=2,
        resnet_stages=row.resnet_stages and (1,) * len(row.resnet_stages),
    )
    for name, row in ARCHITECTURES.items()
}


def shrink_if_asked():
    """Makes the variants of this process small if the environment says so."""
    if ENVIRONMENT.items() <= os.environ.items():
        ARCHITECTURES.update(SMALL)
