"""Measured throughput of models."""

import time

import numpy as np


def images_per_second(predictors, *, rounds=1, seconds=1.0):
    """Returns the images per second of each predictor, by its median batch.

    Both are dicts by name. The predictors take turns of at least so many seconds, so
    that other load of the machine affects all of them. Each is compiled before.
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
