"""Small photos with several labels or a number each, in tables, and runs on them."""

import csv

import numpy as np
from PIL import Image

from keras_vit import ViTConfig
from train import recipes
from train.tasks import TASKS

TINY = ViTConfig(hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, patch_size=8)


def photos(folder, count=24):
    """Writes photos of noise; returns their names, labels of colours, and brightness.

    Every second is red, every third is blue, and the first two are "rare".
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    names, labels, numbers = [], [], []
    for place in range(count):
        own = [
            name
            for name, is_there in (
                ("blue", place % 3 == 0),
                ("rare", place < 2),
                ("red", place % 2 == 0),
            )
            if is_there
        ]
        brightness = rng.uniform(0.2, 0.6)
        pixels = brightness * rng.uniform(0, 1, (16, 16, 3))
        pixels[..., 0] += 0.4 * ("red" in own)
        pixels[..., 2] += 0.4 * ("blue" in own)
        names.append(f"{place:02}.png")
        Image.fromarray(np.uint8(255 * pixels)).save(folder / names[-1])
        labels.append(own)
        numbers.append(round(1000 + 300 * brightness, 3))
    return names, labels, numbers


def write(path, header, rows):
    """Writes a table; returns its path as text."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def table(folder, task):
    """Writes photos and their table of a task; returns the path as text."""
    names, labels, numbers = photos(folder)
    if task == "labels":
        # Columns of 0 and 1 may leave photos without any label.
        known = ("red", "blue", "rare")
        header = ("path", *known)
        rows = [
            (name, *(int(one in own) for one in known))
            for name, own in zip(names, labels, strict=True)
        ]
        return write(folder / "labels.csv", header, rows)
    rows = zip(names, numbers, strict=True)
    return write(folder / "numbers.csv", ("path", "label"), rows)


def recipe(dataset, task, **changes):
    """Returns settings of four steps of a tiny network of random weights."""
    own = recipes.for_dataset(dataset).override(task=task, **TASKS[task].settings)
    return own.override(
        **{"model": TINY, "weights": None, "image_size": 16, "crop": "resize"},
        **{"batch_size": 8, "micro_batches": 1, "validation_fraction": 0.25},
        **{"steps": 4, "warmup_steps": 0, "eval_every": 2, "checkpoint_every": 2},
    ).override(**changes)


def task_of(dataset, name, **changes):
    """Returns the task of such settings, for `train.run.training.run`."""
    return TASKS[name].of("run")(recipe(dataset, name, **changes))
