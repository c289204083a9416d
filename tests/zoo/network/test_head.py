"""Heads: probabilities from logits."""

import numpy as np
import pytest
from scipy import special

from zoo.network.head import softmax


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1, 1000])
def test_softmax_is_that_of_scipy(dtype, scale):
    logits = scale * np.random.default_rng(0).normal(size=(3, 4, 7)).astype(dtype)
    before = logits.copy()
    found = softmax(logits)
    assert found.dtype == dtype
    np.testing.assert_array_equal(logits, before)
    np.testing.assert_allclose(
        found, special.softmax(logits, axis=-1), atol=np.finfo(dtype).eps
    )
