"""What lists a folder of image files: a row and a job a contender.

A step finds all files of `folder`, of one class folder per 100, and what class each is.
"""

import os
import pathlib

from benchmarks.contest import row

OURS = {}

PEERS = {}
_IN_A_CLASS = 100


def fill(folder, count):
    """Writes so many files of one byte, 100 in a class."""
    for index in range(count):
        path = pathlib.Path(folder, f"class{index // _IN_A_CLASS:05}", f"{index}.jpg")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\xff")


@row(OURS, "sources", "keras_vit sources.load", ("tensorflow", "train.data.sources"))
def load(folder):
    """Paths, labels and names, checked, a fifth of each class held out."""
    from train.data import sources

    return lambda: sources.load(folder).total


@row(PEERS, "walk", "bare os.walk", ())
def walk(folder):
    """Names alone."""
    return lambda: sum(len(files) for _, _, files in os.walk(folder))


@row(PEERS, "keras", "keras image_dataset_from_directory", ("tensorflow", "keras"))
def keras(folder):
    """Paths and labels, in an unread data set."""
    from keras.utils import image_dataset_from_directory

    return lambda: len(image_dataset_from_directory(folder, shuffle=False).file_paths)


@row(PEERS, "torchvision", "torchvision ImageFolder", ("torch", "torchvision"))
def torchvision(folder):
    """Paths and labels."""
    from torchvision import datasets

    return lambda: len(datasets.ImageFolder(folder).samples)
