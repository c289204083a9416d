"""Measured throughput of models."""

import time

import numpy as np


def images_per_second(predictors, *, rounds=1, seconds=1.0):
    """Returns the images per second of each predictor, by its median batch.

    The predictors take turns, so that other load of the machine affects all of them.
    Each is compiled before.

    Args:
        predictors: dict of name to `keras_vit.Predictor`.
        rounds: int, turns of each.
        seconds: float, the least time of a turn.

    Returns:
        Dict of name to float.
    """
    batches = {}
    for name, predictor in predictors.items():
        shape = (predictor.batch_size, *predictor.model.input_shape[1:])
        batches[name] = np.zeros(shape, "float32")
        predictor(batches[name])
    times = {name: [] for name in predictors}
    for _ in range(rounds):
        for name, predictor in predictors.items():
            turn = []
            while len(turn) < 3 or sum(turn) < seconds:
                started = time.perf_counter()
                predictor(batches[name])
                turn.append(time.perf_counter() - started)
            times[name] += turn
    return {
        name: predictor.batch_size / float(np.median(times[name]))
        for name, predictor in predictors.items()
    }
