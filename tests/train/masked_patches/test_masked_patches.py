"""Masked patch prediction: what is hidden, what is asked, and the whole run."""

import dataclasses
import shutil
import types

import keras
import numpy as np
import pytest
import same_runs
import tensorflow as tf

import keras_vit
from train import recipes as fine_tuning
from train.common.errors import RunError
from train.data import pipeline, sources
from train.masked_patches import evaluation as masked_evaluation
from train.masked_patches import patches as masking
from train.masked_patches import recipes
from train.masked_patches.report import write_picture
from train.run import building

SMOKE = recipes.for_dataset("digits").smoke()


# The classes that are asked for.


def classes_by_hand(image, rows, columns):
    """In whole numbers: the sum over a patch tells its level without any rounding."""
    height, width = image.shape[0] // rows, image.shape[1] // columns
    patches = image.astype(int).reshape(rows, height, columns, width, 3)
    levels = patches.sum(axis=(1, 3)) * 8 // (256 * height * width)
    return (levels @ [64, 8, 1]).ravel().tolist()


def test_colours_are_those_of_whole_numbers():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (16, 24, 3)) for _ in range(20)]
    # Patches of one value, at the edge of every level and beside it.
    edges = np.clip(32 * np.arange(9)[:, None] + [-1, 0, 1], 0, 255).ravel()
    images += [np.full((16, 24, 3), value) for value in edges]
    # And patches whose mean is at an edge, or a pixel's step below.
    for lack in (0, 1):
        image = np.where(np.indices((16, 24)).sum(axis=0) % 2, 95, 33)[..., None]
        image = np.repeat(image, 3, axis=2)
        image[::8, ::8] -= lack
        images.append(image)
    for image in images:
        scaled = (tf.cast(image.astype("uint8"), tf.float32) - 127.5) / 127.5
        found = masking.colour_classes(masking.mean_colours(scaled, (2, 3)))
        assert found.numpy().tolist() == classes_by_hand(image, 2, 3)
    assert classes_by_hand(images[-2], 2, 3) == [2 * 73] * 6, "64 is of the third level"
    assert classes_by_hand(images[-1], 2, 3) == [73] * 6


@pytest.mark.parametrize(
    ("grid_size", "fraction", "count"),
    [((7, 7), 0.5, 25), ((14, 14), 0.15, 29), ((2, 2), 0.1, 1), ((3, 3), 1.0, 9)],
)
def test_as_many_patches_of_every_image(grid_size, fraction, count):
    corruption = masking.Corruption(grid_size, fraction)
    places, sources = corruption.draw(tf.constant([1, 2]))
    assert corruption.count == count == len(set(places.numpy().tolist()))
    assert sources.shape == (corruption.patches,)


def test_eight_in_ten_are_masked_one_swapped_and_one_kept():
    corruption = masking.Corruption((5, 6))
    seeds = tf.stack([tf.zeros(4_000, tf.int32), tf.range(4_000)], axis=1)

    @tf.function
    def draw_all():
        signature = (tf.int32, tf.int32)
        return tf.map_fn(corruption.draw, seeds, fn_output_signature=signature)

    places, sources = (array.numpy() for array in draw_all())
    own = np.arange(30)
    is_chosen = np.zeros(sources.shape, bool)
    np.put_along_axis(is_chosen, places, True, axis=1)
    assert (sources == own)[~is_chosen].all()
    is_swapped = (sources != 30) & (sources != own)
    images, patches = np.nonzero(is_swapped)
    steps = np.bincount((sources[images, patches] - patches) % 30, minlength=30)
    assert steps[0] == 0
    # Every patch is as often chosen, and every other as often in its place.
    is_kept = is_chosen & (sources == own)
    total = is_chosen.sum()
    for found, share, draws in (
        *(((sources == 30).sum(), 0.8, total), (is_swapped.sum(), 0.1, total)),
        *((is_kept.sum(), 0.1, total), (is_chosen.sum(axis=0), 0.5, 4_000)),
        (steps[1:], 1 / 29, len(images)),
    ):
        # Five standard deviations: of a share p of n draws sqrt(p (1 - p) / n).
        deviation = np.sqrt(share * (1 - share) / draws)
        assert np.abs(found / draws - share).max() < 5 * deviation


def test_an_example_is_a_function_of_its_seed():
    corruption = masking.Corruption((4, 4))
    image = tf.random.stateless_uniform((16, 16, 3), [0, 1], -1, 1)
    (inputs, colours), (again, _), (other, _) = (
        corruption.finish(image, tf.constant(0), tf.constant([3, number]))
        for number in (1, 1, 2)
    )
    for name, value in inputs.items():
        np.testing.assert_array_equal(value, again[name])
    assert (inputs["sources"].numpy() != other["sources"].numpy()).any()
    whole = masking.colour_classes(masking.mean_colours(image, (4, 4))).numpy()
    np.testing.assert_array_equal(colours, whole[inputs["places"].numpy()])
    _, filling = corruption.finish(image, tf.constant(-1), tf.constant([3, 1]))
    assert (filling.numpy() == -1).all()


# The layers and the model.


@pytest.fixture(scope="module")
def built():
    """A model with every weight random, and a batch for it."""
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(SMOKE.model, patch_size=8)
    model, vit, corruption = masking.build(dataclasses.replace(SMOKE, model=config))
    for variable in model.trainable_variables:
        variable.assign(keras.random.normal(variable.shape, stddev=0.3))
    images = tf.random.stateless_uniform((6, 32, 32, 3), [1, 2], -1, 1)
    examples = [
        corruption.finish(image, tf.constant(0), tf.constant([0, number]))
        for number, image in enumerate(images)
    ]
    inputs = {
        name: np.stack([example[0][name] for example in examples])
        for name in ("images", "places", "sources")
    }
    return model, vit, corruption, inputs, np.stack([one[1] for one in examples])


def test_the_model_is_the_vision_transformer_with_two_things_more(built):
    model, vit, corruption, inputs, _ = built
    paths = {variable.path for variable in vit.variables}
    more = {variable.path for variable in model.variables} - paths
    assert more == {"mask_patches/token", "colours/kernel", "colours/bias"}
    plain = keras_vit.VisionTransformer(
        dataclasses.replace(SMOKE.model, patch_size=8), image_size=32, include_top=False
    )
    assert {variable.path for variable in plain.variables} == paths

    # With nothing hidden, its tokens are those of the Vision Transformer.
    own = np.broadcast_to(np.arange(corruption.patches), inputs["sources"].shape)
    logits = model({**inputs, "sources": own}, training=False).numpy()
    tokens = vit(inputs["images"], training=False).numpy()[:, 1:]
    tokens = np.take_along_axis(tokens, inputs["places"][..., None], axis=1)
    head = model.get_layer("colours")
    expected = tokens @ head.kernel.numpy() + head.bias.numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_what_is_hidden_cannot_be_seen(built):
    model, _, _, inputs, _ = built
    logits = model(inputs, training=False).numpy()
    for patch in range(16):
        changed = inputs["images"].copy()
        top, left = 8 * (patch // 4), 8 * (patch % 4)
        changed[:, top : top + 8, left : left + 8] *= -1
        others = model({**inputs, "images": changed}, training=False).numpy()
        differs = np.abs(others - logits).max(axis=(1, 2)) > 1e-6
        visible = (inputs["sources"] == patch).any(axis=1)
        np.testing.assert_array_equal(differs, visible, str(patch))


def test_loss_and_accuracy_are_means_over_the_corrupted_patches(built):
    model, _, corruption, inputs, colours = built
    logits = model(inputs, training=False).numpy()
    exact = logits.astype("float64")
    exact -= np.log(np.exp(exact).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(exact, colours[..., None], axis=-1)[..., 0]
    hits = exact.argmax(axis=-1) == colours
    found = masking.colour_loss(logits, colours)
    np.testing.assert_allclose(found, losses.mean(axis=1), rtol=1e-5)
    found = masking.colour_accuracy(logits, colours)
    np.testing.assert_allclose(found, hits.mean(axis=1), rtol=1e-6)

    # The same from the evaluation, in batches of unequal size, kind by kind.
    trainer = types.SimpleNamespace(
        answers=lambda inputs, colours: (colours, model(inputs, training=False), None),
        gather=np.asarray,
    )
    # The second batch is filled up with an image that does not count.
    filled = np.concatenate([colours, np.full_like(colours[:1], -1)])
    batches = [
        ({name: inputs[name][images] for name in inputs}, filled[places])
        for images, places in (([0, 1, 2, 3],) * 2, ([4, 5, 5], [4, 5, 6]))
    ]
    found = masked_evaluation.evaluate(trainer, batches)
    assert found["examples"] == 6
    chosen = np.take_along_axis(inputs["sources"], inputs["places"], axis=1)
    kinds = {
        "": chosen >= 0,
        "masked_": chosen == corruption.patches,
        "kept_": chosen == inputs["places"],
        "swapped_": (chosen < corruption.patches) & (chosen != inputs["places"]),
    }
    for kind, is_of in kinds.items():
        assert is_of.any()
        np.testing.assert_allclose(found[f"{kind}loss"], losses[is_of].mean(), 1e-5)
        np.testing.assert_allclose(found[f"{kind}accuracy"], hits[is_of].mean())


def test_chance_is_counted():
    split = sources.load("digits", validation_fraction=0.1).validation
    corruption = masking.Corruption((4, 4))
    rng = np.random.default_rng(0)
    frequencies = rng.dirichlet(np.ones(512))
    found = masked_evaluation.by_chance(
        split, corruption, frequencies, image_size=(32, 32), batch_size=50
    )
    [(inputs, colours)] = pipeline.evaluation_batches(
        split, image_size=(32, 32), batch_size=1_000, finish=corruption.finish
    ).as_numpy_iterator()
    expected = -np.log(frequencies[colours]).mean()
    np.testing.assert_allclose(found["constant_loss"], expected)
    expected = np.mean(colours == frequencies.argmax())
    np.testing.assert_allclose(found["constant_accuracy"], expected)
    near = []
    rows = zip(inputs["images"], inputs["places"], colours, strict=True)
    for image, places, right in rows:
        means = image.astype("float64").reshape(4, 8, 4, 8, 3).mean(axis=(1, 3))
        hidden = {divmod(int(place), 4) for place in places}
        shown = {(r, c) for r in range(4) for c in range(4)} - hidden
        for place, colour in zip(places, right, strict=True):
            row, column = divmod(int(place), 4)
            beside = [at for at in shown if abs(at[0] - row) < 2 > abs(at[1] - column)]
            mean = np.mean([means[at] for at in beside or shown], axis=0)
            levels = ((mean * 127.5 + 127.5 + 1e-3) // 32).astype(int)
            near.append(levels @ [64, 8, 1] == colour)
    # In float64 a mean beside an edge may fall on its other side.
    assert abs(found["neighbours_accuracy"] - np.mean(near)) < 2e-3


def test_frequencies_are_those_of_the_training_patches(monkeypatch):
    split = sources.load("digits").train
    settings = {"image_size": (16, 16), "batch_size": 16, "seed": 1}
    monkeypatch.setattr(masked_evaluation, "_COUNTED", 40)
    corruption = masking.Corruption((2, 2))
    found = masked_evaluation.training_frequencies(split, corruption, **settings)
    counts = np.ones(512)
    # Three batches are the first that have 40 images.
    for images, _ in pipeline.training_batches(split, **settings).take(3):
        for image in images:
            means = masking.mean_colours(image, (2, 2))
            np.add.at(counts, masking.colour_classes(means).numpy(), 1)
    assert counts.sum() == 512 + 3 * 16 * 4
    np.testing.assert_allclose(found, counts / counts.sum())


def test_a_picture_is_drawn(built, tmp_path):
    _, _, corruption, inputs, colours = built
    write_picture(tmp_path / "a.png", inputs, colours, colours, corruption.grid_size)
    assert (tmp_path / "a.png").stat().st_size > 10_000


# Recipes, and what is refused.


def test_the_papers_recipe_is_the_papers():
    paper = recipes.for_dataset("jft", "paper")
    assert (paper.steps, paper.warmup_steps, paper.batch_size) == (10**6, 10**4, 4_096)
    assert (paper.learning_rate, paper.schedule) == (2e-4, "cosine")
    assert (paper.optimizer, paper.corrupted_fraction) == ("adam", 0.5)
    assert (paper.crop, paper.flip, paper.image_size) == ("inception", True, 224)
    assert paper.published.startswith("79.9 on ImageNet")
    assert recipes.for_dataset("photos", "paper").published == ""
    for change in ({"corrupted_fraction": 0.15}, {"flip": False}):
        assert paper.override(**change).published == ""
    assert paper.override(corrupted_fraction=0.5, seed=1).published
    assert recipes.for_dataset("imagenet2012").steps == 100_000
    assert recipes.for_dataset("cifar100").model == "ViT-Ti_16"
    for fraction in (0.0, 1.1):
        with pytest.raises(ValueError, match="corrupted_fraction must be above 0"):
            paper.override(corrupted_fraction=fraction)


ROTARY = dataclasses.replace(SMOKE.model, position_embedding="2d")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"model": "R50+ViT-B_16"}, "ResNet of R50.ViT-B_16 .*ViT-B_16"),
        ({"model": "BiT-R50x1"}, "BiT-R50x1 is not a Vision Transformer.*ViT-B_16"),
        ({"model": "ViT-B_61"}, "ViT-B_61 is not a Vision Transformer.*ViT-B_16"),
        ({"image_size": 16}, "16x16 is one patch .*--image_size"),
        ({"image_size": 40}, "multiples of the patch size 16, got 40x40"),
        ({"mixup": 0.2}, "no mixup: leave --mixup out"),
        ({"loss": "sigmoid"}, "no loss: leave --loss out"),
        ({"model": ROTARY}, "no learned position embeddings"),
    ],
)
def test_what_cannot_be_is_refused(values, told):
    with pytest.raises(RunError, match=told):
        masking.build(dataclasses.replace(SMOKE, **values))


def test_two_patches_are_enough():
    _, _, corruption = masking.build(dataclasses.replace(SMOKE, image_size=(16, 32)))
    assert (corruption.patches, corruption.count) == (2, 1)


# Whole runs.


@pytest.fixture(scope="module")
def runs(tmp_path_factory, forks):
    """The folder of a run, and of one that was killed."""
    folder = tmp_path_factory.mktemp("runs")
    whole, killed = folder / "whole", folder / "killed"

    def finished(*more):
        words = ["train.masked_patches", "--dataset=digits", "--smoke", *more]
        return forks.output(folder, *words)

    output = finished("--run_dir=whole", "--explained_images=1")
    # A kill after step 6 leaves the checkpoint of step 4, and a longer log.
    shutil.copytree(whole, killed)
    for name in ("checkpoints/step-00000008.npz", "weights.npz", "report.json"):
        (killed / name).unlink()
    return whole, killed, output + finished("--run_dir=killed")


@pytest.mark.slow
def test_a_run_its_resume_and_its_report(runs):
    whole, killed, stdout = runs
    assert "corrupting 2 of 4 patches per image" in stdout
    assert "going on after step 4" in stdout
    # The second run draws no pictures, which change nothing.
    same_runs.assert_same_bits(whole, killed)
    records = same_runs.records(whole)
    assert [line["step"] for line in records if "val_loss" in line] == [4, 8]
    report = same_runs.report(whole)
    assert report["validation_examples"] == 72 and report["test_examples"] == 128
    # The head begins with zeros: chance, which even so short a run gets away from.
    assert abs(report["uniform_loss"] - np.log(512)) < 1e-12
    assert report["validation_loss"] < report["uniform_loss"]
    page = (whole / "report.md").read_text()
    assert "the one that was optimized, softmax cross-entropy," in page
    assert f"**Validation loss {report['validation_loss']:.3f}**" in page
    assert f"the {report['validation_constant_loss']:.3f} of chance" in page
    for name in ("predictions.png", "learning_curve.png"):
        assert (whole / name).is_file() and name in page
    # Pictures of the attention, at both validations.
    shown = [
        (value.tag, event.step)
        for path in sorted((whole / "tensorboard").iterdir())
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "images"
    ]
    names = ("attention rollout", "figure 7")
    assert shown == [(name, step) for step in (4, 8) for name in names]


@pytest.mark.slow
def test_fine_tuning_begins_with_all_that_was_trained(runs):
    # But with neither [mask] nor the head of colours, and at another size too.
    trained = same_runs.trained(runs[0])
    weights = runs[0] / "weights.npz"
    own_data = fine_tuning.for_dataset("digits", "own_data").smoke()
    for image_size in (32, 48):
        recipe = own_data.override(weights=str(weights), image_size=image_size)
        model = building.model(recipe, classes=10)
        body = {one.path: one.numpy() for one in model.trainable_variables}
        assert not np.any(body.pop("head/kernel")) and not np.any(body.pop("head/bias"))
        assert len(body) == len(np.load(weights).files)
        for path, value in body.items():
            if image_size == 32 or not path.startswith("position_embedding/"):
                np.testing.assert_array_equal(value, trained[path], strict=True)
