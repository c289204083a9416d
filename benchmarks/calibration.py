"""What the machine gives at this moment: its rate of float32 matrix products."""

import importlib.util

# The first product of an MLP of ViT-B/16 on eight images of 224 x 224.
ROWS, INNER, COLUMNS = 1576, 768, 3072
# More weights than a cache holds, as in a model.
MATRICES = 12
CALIBRATION_OPERATIONS = 2 * ROWS * INNER * COLUMNS * MATRICES


def matrix_product():
    """Returns the step: a dozen products, by TensorFlow or else by NumPy."""
    import numpy as np

    random = np.random.default_rng(0)
    rows = random.standard_normal((ROWS, INNER), "float32")
    weights = [
        random.standard_normal((INNER, COLUMNS), "float32") for _ in range(MATRICES)
    ]
    if importlib.util.find_spec("tensorflow") is None:
        return lambda: [rows @ weight for weight in weights]

    import tensorflow as tf

    rows = tf.constant(rows)
    weights = [tf.constant(weight) for weight in weights]

    @tf.function
    def products(rows, weights):
        # One number of each is enough to need the whole product.
        return [tf.matmul(rows, weight)[0, 0] for weight in weights]

    return lambda: [number.numpy() for number in products(rows, weights)]
