"""Keeps of a run's test what answers to other photos are judged by."""

import pathlib
from collections.abc import Callable

import keras
import numpy as np

import keras_vit
from keras_vit.structure import preparation_of
from train.data import pipeline
from train.data.sources.splits import Source, Split
from train.data.sources.subset import limited
from train.models.exports.writing import body_and_head
from train.scoring import predicting
from train.scoring.held_out import KNOWN, HeldOut, distances_to, unit
from train.scoring.ranked import Ranked

_BATCH_SIZE = 32
# Choosing some of more examples, as of all ImageNet, would take minutes of reading.
_MOST_READ = 200_000


Features = Callable[[Split], np.ndarray]


def keep(
    path: pathlib.Path,
    answered: Ranked,
    train: Split,
    test: Split,
    features: Features | None,
) -> None:
    """Writes the `HeldOut` of a network's answers to the test of its data.

    `train` are photos of the training part, of which some are to be known. `features`
    is a function of a split to what the network's head reads, floats (photos, size),
    see `features_by`; None where none are to be known.
    """
    is_correct = answered.predicted == answered.labels
    known, distances = np.zeros((0, 0)), np.zeros(0)
    if features is not None:
        of_train, of_test = (features(limited(split, KNOWN)) for split in (train, test))
        known = unit(of_train).astype("float16")
        distances = distances_to(known, of_test)
    HeldOut(answered.confidence, is_correct, known, distances).write(path)


def features_by(network: keras.Model, source: Source) -> Features | None:
    """Returns the function of a split to features that a network computes.

    A network without features of one row per photo has none, nor have very many photos
    that are not in memory.
    """
    body, head = body_and_head(network)
    train = source.train
    can_choose = train.arrays is not None or train.num_examples <= _MOST_READ
    if not can_choose or head is None or len(body.output_shape) != 2:
        return None
    predictor = keras_vit.Predictor(body, _BATCH_SIZE, engine="keras")

    def features(split: Split) -> np.ndarray:
        batches = pipeline.evaluation_batches(
            split,
            image_size=predictor.model.input_shape[1:3],
            batch_size=_BATCH_SIZE,
            preparation=preparation_of(predictor.model),
        )
        computed = predicting.predictions(predictor, batches, split, "features")
        return np.concatenate([rows for _, rows in computed])

    return features
