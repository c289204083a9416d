"""The released Ti/16, real photos and CIFAR-100, which only developers and CI have."""

import csv
import json

import keras
import numpy as np
import pytest
from harness import numpy, rms
from PIL import Image

import keras_vit
import zoo
from zoo import photos

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="training needs TensorFlow"
    ),
]


@pytest.fixture(scope="module")
def weights(shared):
    return shared / "weights" / "ViT-Ti_16-augreg-imagenet21k+imagenet2012-224.npz"


@pytest.fixture(scope="module")
def rows(shared):
    with open(shared / "photos" / "imagenet" / "labels.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_answers_are_those_of_the_reference_in_int8_too(weights, rows, shared):
    cut = []
    for row in rows:
        photo = Image.open(shared / "photos" / "imagenet" / row["file"]).convert("RGB")
        left, top = (photo.width - 224) // 2, (photo.height - 224) // 2
        cut.append(np.asarray(photo.crop((left, top, left + 224, top + 224))))
    images = keras_vit.preprocess_input(np.stack(cut))
    model = keras_vit.ViT_Ti16(weights)
    logits = np.asarray(model.predict(images, batch_size=50, verbose=0))
    labels = np.array([int(row["label"]) for row in rows])
    order = np.argsort(-logits, axis=1)
    reference = np.load(shared / "photos" / "imagenet_reference_top1.npy")
    # The same answers but for photos whose two best classes tie to rounding.
    assert np.sum(order[:, 0] != reference) <= 1
    assert abs(np.mean(order[:, 0] == labels) - 0.812) <= 0.002
    assert abs(np.mean((order[:, :5] == labels[:, None]).any(axis=1)) - 0.940) <= 0.002
    few = numpy(keras_vit.quantize_weights(model)(images[:20]))
    # On 500 photos 98% keep their answer, and no logit is off by more than 0.48.
    assert (few.argmax(axis=1) == order[:20, 0]).mean() >= 0.95
    assert 0.01 < rms(few - logits[:20]) < 0.1


def test_photos_are_the_same_in_zoo_and_in_evaluation(shared):
    import tensorflow as tf

    from train.data.transforms.decoding import decode_image
    from train.data.transforms.preprocessing import squash, to_model_range

    for name in ("n01440764", "n01484850"):
        path = shared / "photos" / "imagenet" / f"{name}.jpg"
        image = decode_image(tf.constant(path.read_bytes()))
        expected = to_model_range(squash(image, (224, 224)))
        np.testing.assert_array_equal(photos.prepare(path, 224), expected)


def test_classes_of_imagenet_are_in_the_order_of_the_reference(shared):
    ids = (shared / "labels" / "imagenet_synsets.txt").read_text().split()
    assert [wordnet_id for wordnet_id, _ in zoo.class_names("imagenet2012")] == ids


def test_cifar100_trains_by_command(weights, shared, forks, tmp_path):
    output = forks.output(
        tmp_path,
        "train.finetune",
        *("--dataset=cifar100", f"--data_dir={shared / 'tfds'}", "--run_dir=run"),
        *("--model=ViT-Ti_16", f"--weights={weights}", "--image_size=32"),
        *("--steps=2", "--batch_size=64", "--validation_fraction=0.001"),
    )
    assert "49,950 training, 50 validation and 10,000 test images" in output
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["test_examples"], report["steps"]) == (10_000, 2)
    assert len(report["per_class"]) == 100
