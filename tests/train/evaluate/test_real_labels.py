"""ImageNet's reassessed labels: read, matched with images, and counted."""

import os
import pathlib
import re

import numpy as np
import pytest
from evaluated import report_of, tiny
from PIL import Image

import keras_vit
import zoo
from train.common.errors import RunError
from train.data import sources
from train.evaluate import evaluation, real_labels


@pytest.fixture
def imagenet(tmp_path):
    """Photos named as those of ImageNet's validation set, of two classes."""
    for part in ("train", "test"):
        for number, name in enumerate("babab", start=1):
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (9, 9), (40 * number,) * 3)
            image.save(folder / f"ILSVRC2012_val_{number:08d}.JPEG")
    return tmp_path / "imagenet"


def test_reassessed_labels(imagenet, tmp_path, monkeypatch):
    names = [(f"n{index:08d}", f"thing_{index}") for index in range(1000)]
    names[5], names[9] = ("n5", "a"), ("n9", "b")
    monkeypatch.setattr(zoo, "class_names", lambda data_set: names)
    model = tiny(1000)
    head = model.get_layer("head")
    head.kernel.assign(np.zeros((16, 1000)))
    head.bias.assign(np.eye(1000)[7])  # it always answers 7
    path = tmp_path / "seven.npz"
    keras_vit.save_released_weights(model, path)
    own = "\n".join(name for _, name in names)
    (tmp_path / "class_names.txt").write_text(own, "utf-8")
    file, out = tmp_path / "real.json", tmp_path / "out"
    given = {"dataset": str(imagenet), "out_dir": out, "real_labels_file": file}
    file.write_text("[[7, 8], [], [6], [1, 7], [7]]")
    evaluation.evaluate(str(path), **given)
    found = report_of(out)
    assert found["test_accuracy"] == 0 and found["test_examples"] == 5
    assert (found["test_real_accuracy"], found["test_real_examples"]) == (3 / 4, 4)
    assert found["test_real_accuracy_low"] < 3 / 4 < found["test_real_accuracy_high"]
    assert "test_real_accuracy | 75.00%" in (out / "report.md").read_text()
    file.write_text("[[7], [7], [7], [7]]")
    with pytest.raises(RunError, match="00000005.JPEG is not one of the 4 images"):
        evaluation.evaluate(str(path), **given)


def test_reassessed_labels_find_their_images(imagenet):
    names = real_labels.file_names(sources.load(str(imagenet)).test, str(imagenet))
    labels = real_labels.of_files([{1}, {2}, {3}, {4}, {5}], names)
    assert labels == [{2}, {4}, {1}, {3}, {5}]  # as the files are sorted
    with pytest.raises(RunError, match="cat.jpg is not one of the 5 images"):
        real_labels.of_files(5 * [{1}], ["cat.jpg"])


def test_reassessed_labels_of_a_tfds_data_set(tmp_path):
    """TFDS shuffles the images, and knows their names."""
    tfds = pytest.importorskip("tensorflow_datasets")
    builder = tfds.builder("imagenet2012", data_dir=tmp_path)
    images = []
    for number in range(1, 31):
        name = f"ILSVRC2012_val_{number:08d}.JPEG"
        image = np.full((8, 8, 3), 8 * number, "uint8")
        images.append((name, {"image": image, "label": 0, "file_name": name}))
    tfds.dataset_builders.store_as_tfds_dataset(
        name=builder.name,
        version=str(builder.version),
        features=builder.info.features,
        split_datasets=dict.fromkeys(("train", "validation"), images),
        data_dir=tmp_path,
    )
    part = sources.load("imagenet2012", data_dir=tmp_path).test
    names = real_labels.file_names(part, "imagenet2012", tmp_path)
    right = real_labels.of_files([{number} for number in range(1, 31)], names)
    pixels = [part.decode(image)[0, 0, 0] for image, _ in part.records()]
    assert right == [{round(int(pixel) / 8)} for pixel in pixels]
    assert right != sorted(right, key=min)


@pytest.mark.parametrize(
    "text", ["{", "[1]", "[[1000]]", '[["dog"]]', "[]", "{}", "a FIFO", "more than"]
)
def test_labels_that_are_none_or_endless_are_refused(text, tmp_path):
    file = tmp_path / "real.json"
    if text == "a FIFO":
        os.mkfifo(file)
    else:
        file.write_text(text)
    if text == "more than":
        os.truncate(file, 10**10)
    told = text if text in ("a FIFO", "more than") else ""
    with pytest.raises(RunError, match=f"{re.escape(str(file))}.*{told}"):
        real_labels.read(file)


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    pathlib.Path(tmp_path, "real.json").write_text("[[970]]")
    assert real_labels.read("~/real.json") == [{970}]
