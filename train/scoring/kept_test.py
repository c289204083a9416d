"""Keeps of a run's test what answers to other photos are judged by."""

import pathlib

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


def keep(
    path: pathlib.Path, network: keras.Model, answered: Ranked, source: Source
) -> None:
    """Writes the `HeldOut` of a network's answers to the test of its data.

    A network without features of one row per photo has none of known photos, nor has
    one of very many photos that are not in memory.
    """
    is_correct = answered.predicted == answered.labels
    known, distances = np.zeros((0, 0)), np.zeros(0)
    body, head = body_and_head(network)
    train = source.train
    can_choose = train.arrays is not None or train.num_examples <= _MOST_READ
    if can_choose and head is not None and len(body.output_shape) == 2:
        predictor = keras_vit.Predictor(body, _BATCH_SIZE, engine="keras")
        known = unit(_features(predictor, train)).astype("float16")
        distances = distances_to(known, _features(predictor, source.test))
    HeldOut(answered.confidence, is_correct, known, distances).write(path)


def _features(predictor: keras_vit.Predictor, split: Split) -> np.ndarray:
    split = limited(split, KNOWN)
    batches = pipeline.evaluation_batches(
        split,
        image_size=predictor.model.input_shape[1:3],
        batch_size=_BATCH_SIZE,
        preparation=preparation_of(predictor.model),
    )
    computed = predicting.predictions(predictor, batches, split, "features")
    return np.concatenate([features for _, features in computed])
