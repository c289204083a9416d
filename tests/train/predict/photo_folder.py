"""What the fixture `folder` has, and what the models of `files` and `stub` answer."""

import io
import pathlib
import tarfile

import numpy as np
import pyarrow.parquet
from scipy.special import softmax

from train.predict.classifiers import Classifier
from zoo.network.head import Answers
from zoo.photos import prepare

NAMES = ("cat", "été", "white shark", "4", "5")
PROBABILITIES = Answers(("red", "green", "blue"), are_logits=False)
STUB = Classifier(
    name="stub",
    image_shape=(8, 8, 3),
    preparation="squash",
    batch_size=4,
    compute=None,
    answers=PROBABILITIES,
    num_features=3,
    notes=("a note",),
    digest=lambda: "1f",
)


def paths(*numbers):
    return [f"photos/{number}.png" for number in numbers or range(10)]


def by_mean(images):
    """Returns probabilities and features of images."""
    means = images.mean(axis=(1, 2))
    return softmax(20 * means, axis=1), means


def interrupted(images):
    raise KeyboardInterrupt


def prepared(*size, **options):
    """All photos as a model takes them."""
    return np.stack([prepare(path, size, **options) for path in paths()])


def text_of(path):
    return pathlib.Path(path).read_text("utf-8")


def lines_of(folder):
    """Returns the rows of all parts in CSV, sorted."""
    files = pathlib.Path(folder).glob("part-*.csv")
    return sorted(line for file in files for line in file.read_text().splitlines()[1:])


def rows_of(folder):
    """Returns the rows of all parts in Parquet."""
    return pyarrow.parquet.read_table(folder).to_pylist()


def tar_of(path, names):
    """Writes photos and a file that is none into an archive."""
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.add(f"photos/{name}", arcname=f"set/{name}")
        info = tarfile.TarInfo("set/0.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
