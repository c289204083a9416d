"""The task of masks: trained, judged and answered as a run."""

import csv
import json

import keras
import numpy as np
import pytest
from made_masks import lay_out_masks
from PIL import Image

import keras_vit
from train import recipes, tasks
from train.common.errors import RunError
from train.data.columns import USUAL
from train.engine.losses import counted_pixels, pixel_cross_entropy
from train.masks import prediction, report
from train.masks.evaluation import evaluate
from train.masks.prediction import predict
from train.masks.segmenting import Segmenter
from train.masks.task import Masks
from train.models import loaded_model
from train.models.finding import find
from train.models.keras_files import load_model
from train.run import training
from train.scoring.evaluation_data import load_split

LAYOUT = ("images/{part}/{name}.jpg", "masks/{part}/{name}.png")
TABLE = "value,name\n0,sky\n1,road\n2,car\n"
CONFIG = keras_vit.ViTConfig(
    hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, patch_size=8
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Photos whose left half is dark and sky, and whose right half is a road."""
    folder = tmp_path_factory.mktemp("scenes")
    lay_out_masks(folder, {"train": 8, "test": 4}, LAYOUT, table=TABLE, size=(40, 56))
    for path in folder.glob("images/*/*.jpg"):
        pixels = np.asarray(Image.open(path)) // 3
        pixels[:, 28:] += 160
        Image.fromarray(pixels).save(path, quality=95)
    for path in folder.glob("masks/*/*.png"):
        numbers = np.zeros((40, 56), np.uint8)
        numbers[:, 28:] = 1
        numbers[:2] = 255
        Image.fromarray(numbers).save(path)
    return folder


def recipe(dataset, **changes):
    """A run of a few steps of a tiny network."""
    kind = tasks.TASKS[tasks.MASKS]
    settings = kind.settings | kind.of_heads.get(changes.get("mask_head"), {})
    of_test = {
        "model": CONFIG, "weights": None, "image_size": (32, 48), "steps": 12,
        "epochs": None, "warmup_steps": 2, "batch_size": 4, "learning_rate": 0.02,
        "validation_fraction": 0.25, "frozen": False, "eval_every": 6,
        "checkpoint_every": 6, "crop": "resize", "flip": False,
    }  # fmt: skip
    own = recipes.for_dataset(str(dataset))
    return own.override(**{"task": "masks", **settings, **of_test, **changes})


@pytest.fixture(scope="module")
def run(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "scenes"
    results = training.run(Masks(recipe(scenes)), run_dir=folder)
    return folder, results


def test_data_show_their_task(scenes):
    assert tasks.seen(str(scenes), USUAL) == "masks"


def test_a_run_learns_which_half_is_road(run):
    folder, results = run
    assert results["test_accuracy"] > 0.9
    assert results["test_mean_iou"] > 0.8
    assert results["test_examples"] == 4
    written = json.loads((folder / "report.json").read_text())
    assert written["test_mean_iou"] == results["test_mean_iou"]
    names = [row["name"] for row in written["per_class"]]
    assert names == ["sky", "road", "car"]
    assert written["per_class"][2]["iou"] is None
    assert {"worst_photos.png", "predictions.png", "report.html"} <= {
        path.name for path in folder.iterdir()
    }
    assert load_model(folder / "model.keras").get_layer("head").class_names == (
        "sky",
        "road",
        "car",
    )


def judged(run, out_dir):
    """The report of a run's model on its test."""
    loaded = loaded_model.load(str(run), masks=True)
    source, part = load_split(loaded, None, "test")
    given = {"split": "test", "settings": {}, "results": {}, "notes": ["One."]}
    return evaluate(out_dir, source, part, loaded.model, **given)


def test_it_is_evaluated_as_the_run_says(run, tmp_path):
    folder, results = run
    again = judged(folder, tmp_path / "report")
    assert again["test_mean_iou"] == pytest.approx(results["test_mean_iou"], abs=1e-6)
    assert again["notes"] == ["One."]


def test_masks_of_photos_are_written(run, scenes, tmp_path):
    folder, _ = run
    photos = sorted(map(str, (scenes / "images" / "test").iterdir()))
    (tmp_path / "broken.jpg").write_bytes(b"no photo")
    given = [*photos, str(tmp_path / "broken.jpg"), photos[0]]
    count, refused = predict(find(str(folder)), given, tmp_path / "out")
    assert count == 5 and len(refused) == 1 and "broken.jpg" in refused[0]
    out = tmp_path / "out"
    written = sorted(path.name for path in (out / "masks").iterdir())
    assert written == ["test0-2.png", *(f"test{n}.png" for n in range(4))]
    mask = Image.open(out / "masks" / "test1.png")
    assert mask.mode == "P" and mask.size == (56, 40)
    segmenter = Segmenter(load_model(folder / "model.keras"))
    photo = np.asarray(Image.open(photos[1]))
    np.testing.assert_array_equal(np.asarray(mask), segmenter(photo))
    rows = list(csv.DictReader((out / "areas.csv").open()))
    own = [row for row in rows if row["file"] == photos[1]]
    assert sum(int(row["pixels"]) for row in own) == 40 * 56
    assert (out / "classes.csv").read_text().startswith("value,name,r,g,b")


def test_a_stopped_run_goes_on_as_one_that_was_not(scenes, run, tmp_path, monkeypatch):
    folder, _ = run
    saved = training.TrainingLoop._save

    def stop(loop, step):
        saved(loop, step)
        loop.checkpoints.wait()
        if step == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.TrainingLoop, "_save", stop)
    with pytest.raises(KeyboardInterrupt):
        training.run(Masks(recipe(scenes)), run_dir=tmp_path / "run")
    monkeypatch.undo()
    training.run(Masks(recipe(scenes)), run_dir=tmp_path / "run")
    once, again = (
        load_model(one / "model.keras").get_weights()
        for one in (folder, tmp_path / "run")
    )
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_eomt_is_trained_and_answers(scenes, tmp_path):
    settings = recipe(scenes, mask_head="eomt", steps=3, warmup_steps=0)
    results = training.run(Masks(settings), run_dir=tmp_path / "run")
    assert 0 <= results["test_mean_iou"] <= 1
    model = load_model(tmp_path / "run" / "model.keras")
    assert {*model.output} == {"class_logits", "mask_logits"}
    again = judged(tmp_path / "run", tmp_path / "report")
    assert again["test_mean_iou"] == pytest.approx(results["test_mean_iou"], abs=1e-6)


REFUSED = {
    "RandAugment": ({"rand_augment": (2, 15.0)}, "--rand_augment changes photos"),
    "frozen EoMT": ({"mask_head": "eomt", "frozen": True}, "--frozen trains a linear"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_masks_do_not_follow_is_refused(case, scenes, tmp_path):
    changes, message = REFUSED[case]
    with pytest.raises(RunError, match=message):
        training.run(Masks(recipe(scenes, **changes)), run_dir=tmp_path / "run")


def test_settings_of_another_task_are_refused(scenes):
    own = recipes.for_dataset(str(scenes))
    with pytest.raises(ValueError, match="mask_head=eomt is of task=masks"):
        own.override(mask_head="eomt").check()
    with pytest.raises(ValueError, match="loss=pixels is for masks, not for task"):
        own.override(loss="pixels").check()


def test_the_loss_of_pixels_is_the_mean_of_those_that_count():
    random = np.random.default_rng(0)
    logits = random.normal(size=(3, 4, 5, 6)).astype("float32")
    labels = random.integers(0, 6, (3, 4, 5)).astype("int32")
    labels[0, :2] = 255
    labels[2] = 255
    wide = logits.astype(float)
    shares = np.exp(wide) / np.exp(wide).sum(axis=-1, keepdims=True)
    for photo in range(3):
        counts = labels[photo] != 255
        chosen = shares[photo][counts, labels[photo][counts]]
        expected = -np.log(chosen).mean() if counts.any() else 0.0
        found = keras.ops.convert_to_numpy(pixel_cross_entropy(logits, labels))
        assert found[photo] == pytest.approx(expected, abs=1e-6)
    counted, count = counted_pixels(labels)
    assert keras.ops.convert_to_numpy(count).tolist() == [10, 20, 1]
    assert keras.ops.convert_to_numpy(counted).sum() == 30


def test_names_of_masks_are_never_taken_twice():
    photos = ["x/a.jpg", "y/A.jpg", "y/a-2.jpg", "z/a.jpg"]
    assert [name for _, name in prediction.names_for(photos)] == [
        *("a", "A-2", "a-2-2", "a-3"),
    ]


def test_worst_photos_are_chosen_by_iou_and_what_counts():
    truth = np.zeros((4, 10), "int32")
    truth[0, 0] = 1
    ignored = np.full((4, 10), 255)
    photo = np.zeros((4, 10, 3), "uint8")
    # The small object is missed in the third: nearly all pixels are right.
    answers = iter([truth, truth, np.zeros_like(truth)])
    photos = [("a", photo, truth), ("b", photo, ignored), ("c", photo, truth)]
    found = report.judged(photos, 3, lambda _: next(answers), ["sky", "bird"])
    assert sorted(found.drawn) == [0, 2]
    assert found.found.worst.tolist()[0] == 2
