"""Labels that are no file, or endless, are refused."""

import os

import pytest

from train.common.errors import RunError
from train.evaluate import real_labels


def test_labels_that_are_a_fifo_or_endless_are_refused(tmp_path):
    path = tmp_path / "real.json"
    os.mkfifo(path)
    with pytest.raises(RunError, match="is a FIFO"):
        real_labels.read(path)
    path.unlink()
    with open(path, "wb") as file:
        file.truncate(10**10)
    with pytest.raises(RunError, match="more than"):
        real_labels.read(path)
