"""The released variants made small: as wide, but two blocks deep.

For tests whose point is that a command or a cell runs, not what a model computes.
"""

import dataclasses
import os

import pytest

from zoo import store
from zoo.network import VARIANTS

# With it in the environment, commands of a `ForkServer` have small variants.
ENVIRONMENT = {"SMALL_VARIANTS": "1"}
SMALL = {
    name: dataclasses.replace(
        row,
        num_layers=2,
        resnet_stages=row.resnet_stages and (1,) * len(row.resnet_stages),
    )
    for name, row in VARIANTS.items()
}


def shrink(patch):
    """Makes the variants small, and lets their files be, until the patch is undone."""
    for name, row in SMALL.items():
        patch.setitem(VARIANTS, name, row)
    patch.setattr(store, "_SIZE_TOLERANCE", 1.0)


def shrink_if_asked():
    """Makes the variants of this process small if the environment says so."""
    if ENVIRONMENT.items() <= os.environ.items():
        shrink(pytest.MonkeyPatch())
