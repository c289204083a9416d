"""Runs the model on all photos, once: outputs, attention and attention sinks."""

from collections.abc import Collection, Sequence
from typing import Any

import keras
import numpy as np

import keras_vit
from keras_vit.explain import attention_sinks
from keras_vit.explain.one_pass import inspect
from train.explain.photos import Photos
from zoo.store.progress import progress_bar

_BATCH_SIZE = 8
# Fewer photos may all happen to show something at the border.
_LEAST_PHOTOS = 4


def run(model: keras.Model, photos: Photos, places: Collection[int]) -> tuple:
    """Returns what a model computes for `Photos`; those at `places` are shown.

    These are the outputs for all photos; the attention distance, float32 (layers,
    photos, heads), or the reason why there is none, a str; a dict of `places` to the
    `Inspection` of each, or that reason; and the rows of `find_sinks`.
    """
    outputs, distances, chosen, why_none = [], [], {}, None
    predictor, seen = None, 0
    counts: Any = 0
    shares: Any = 0
    with progress_bar(total=len(photos), unit="photo", desc="predicting") as bar:
        for batch in photos.batches(_BATCH_SIZE):
            if why_none is None:
                try:
                    inspected = inspect(model, batch)
                except ValueError as error:
                    why_none = str(error)
                    predictor = keras_vit.Predictor(model, _BATCH_SIZE)
            if why_none is None:
                outputs.append(inspected.outputs)
                distances.append(inspected.distance)
                for place in range(seen, seen + len(batch)):
                    if place in places:
                        chosen[place] = inspected.of_image(place - seen)
                counts += attention_sinks(inspected.received).sum(axis=1)
                shares += inspected.received.sum(axis=1, dtype="float64")
            else:
                outputs.append(predictor(batch))
            seen += len(batch)
            bar.update(len(batch))
    if why_none is not None:
        return np.concatenate(outputs), why_none, dict.fromkeys(places, why_none), []
    sinks = find_sinks(counts, shares / seen, seen)
    distance = np.concatenate(distances, axis=1)
    return np.concatenate(outputs), distance, chosen, sinks


def find_sinks(counts: np.ndarray, shares: np.ndarray, photos: int) -> list[dict]:
    """Returns the patches that are attention sinks in at least half of the photos.

    `counts`, ints (layers, rows, columns), has in how many photos each patch is one,
    and `shares` its mean share of the attention. The result is a list of dicts, where
    layer, row and column count from 1; it is empty for fewer than four photos.
    """
    if photos < _LEAST_PHOTOS:
        return []
    return [
        {
            "layer": int(layer) + 1,
            "row": int(row) + 1,
            "column": int(column) + 1,
            "share": round(float(shares[layer, row, column]), 4),
            "photos": int(counts[layer, row, column]),
        }
        for layer, row, column in np.argwhere(2 * counts >= photos)
    ]


def describe_sinks(sinks: list[dict], grid: Sequence[int] | None) -> str | None:
    """Returns one sentence about the rows of `find_sinks`, None without any.

    `grid` is (rows, columns) of the patches.
    """
    if not sinks:
        return None
    layers = sorted({sink["layer"] for sink in sinks})
    shares = dict.fromkeys(layers, 0)
    for sink in sinks:
        shares[sink["layer"]] += sink["share"]
    most = max(layers, key=shares.get)
    places = sorted({(sink["row"], sink["column"]) for sink in sinks})
    named = ", ".join(f"row {row} column {column}" for row, column in places[:8])
    named += f" and {len(places) - 8} more" * (len(places) > 8)
    single = len(places) == 1
    patches = f"{'a patch' if single else f'{len(places)} patches'} at the border"
    if places == [(row, column) for row in (1, grid[0]) for column in (1, grid[1])]:
        patches = "the patches at the four corners"
    in_layers, peak = f"layer {layers[0]}", ""
    if layers[1:]:
        gapless = layers == list(range(layers[0], layers[-1] + 1))
        in_layers = "layers " + ", ".join(map(str, layers))
        if gapless and layers[2:]:
            in_layers = f"layers {layers[0]} to {layers[-1]}"
        peak = f", most in layer {most}"
    return (
        f"Attention sinks: {patches} ({named}) {'attracts' if single else 'attract'} "
        f"attention whatever the photo shows, in {in_layers}{peak} "
        f"with {shares[most]:.0%} of all attention; bright spots there are no part of "
        "the answer."
    )
