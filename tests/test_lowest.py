"""Which releases `make lowest` installs."""

import lowest
import pytest

SETUP = """
[options]
install_requires =
    keras>=3.14.1
    filelock>=3.20.3

[options.extras_require]
train =
    keras_vit[tensorflow]
    absl-py>=2.1
test =
    keras>={keras}
    setuptools<82
    # numpy>=1.0 in a comment is no bound.
"""


def test_every_lower_bound_is_a_constraint_and_two_are_refused():
    bounds = {"keras": "3.14.1", "filelock": "3.20.3", "absl-py": "2.1"}
    assert lowest.lowest(SETUP.format(keras="3.14.1")) == bounds
    with pytest.raises(ValueError, match=r"keras has two bounds, 3\.14\.1 and 3\.15"):
        lowest.lowest(SETUP.format(keras="3.15"))
    found = lowest.lowest(lowest.SETUP.read_text("utf-8"))
    assert {"keras", "filelock", "onnxruntime", "tensorflow"} <= found.keys()
