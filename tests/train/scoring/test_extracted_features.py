"""Features of photos: what they are, in each view, and the file that keeps them."""

import dataclasses

import keras
import numpy as np
import pytest
from evaluated import CONFIG, tiny
from PIL import Image

import keras_vit
from train.common.errors import RunError
from train.data import sources
from train.data.contents import digests
from train.data.sources.splits import pick
from train.scoring import feature_cache, features, predicting
from train.scoring.features import Extractor, extract
from zoo.photos import prepare


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six photos of two classes, wider than high, of which two are the same."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(6):
        pixels = rng.integers(0, 256, (20, 30, 3), np.uint8)
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    (folder / "b" / "5.png").write_bytes((folder / "a" / "0.png").read_bytes())
    return folder


@pytest.fixture
def split(photos):
    return sources.load(str(photos), validation_fraction=None).all


@pytest.fixture(scope="module")
def network():
    return tiny(7)


def images_of(photos, size=(32, 32)):
    return np.stack([prepare(path, size) for path in sorted(photos.glob("*/*"))])


def expected_of(model, images):
    """The class token and the mean of the patches' tokens, by the layers' outputs."""
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)(images)
    tokens = keras.ops.convert_to_numpy(tokens)
    return tokens[:, 0], tokens[:, 1:].mean(axis=1)


def test_the_class_token_and_the_mean_of_the_patches(network, photos, split):
    found = extract(network, split, batch_size=4)
    pooled, patch_mean = expected_of(network, images_of(photos))
    np.testing.assert_allclose(found.pooled, pooled, atol=1e-5)
    np.testing.assert_allclose(found.patch_mean, patch_mean, atol=1e-5)
    np.testing.assert_array_equal(
        found.joined, np.hstack([found.pooled, found.patch_mean])
    )
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    alone = extract(network, split, patches=False)
    assert alone.patch_mean is None and alone.joined is alone.pooled
    np.testing.assert_allclose(alone.pooled, pooled, atol=1e-5)


def test_photos_come_through_another_size(network, photos, split, tmp_path):
    found = direct = Extractor(network)(split, through=(40, 48))
    images = keras.ops.image.resize(
        images_of(photos, (40, 48)), (32, 32), antialias=False
    )
    pooled, patch_mean = expected_of(network, images)
    np.testing.assert_allclose(found.pooled, pooled, atol=1e-5)
    np.testing.assert_allclose(found.patch_mean, patch_mean, atol=1e-5)
    # The network's own size is none other, and has the same file.
    extractor = Extractor(network)
    for through in (None, (32, 32), (40, 48)):
        found = extractor(split, through=through, cache=tmp_path)
    np.testing.assert_allclose(found.pooled, direct.pooled, atol=1e-5)
    assert len([*tmp_path.glob("*.npz")]) == 2


def test_another_size_and_mirrored_photos(network, photos, split):
    extractor = Extractor(network, image_size=(40, 48))
    found = extractor(split, mirrored=True)
    images = images_of(photos, (40, 48))[:, :, ::-1]
    bigger = keras_vit.at_image_size(network, (40, 48))
    pooled, patch_mean = expected_of(bigger, images)
    np.testing.assert_allclose(found.pooled, pooled, atol=1e-5)
    np.testing.assert_allclose(found.patch_mean, patch_mean, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"pooling": "map"}, (16, 16)),
        ({"pooling": "gap"}, (16, None)),
        ({"pooling": "token_and_gap"}, (32, None)),
        ({"representation_size": 24}, (24, 16)),
        ({"include_top": False, "pooling": "token"}, (16, 16)),
        ({"image_size": (None, None)}, (16, 16)),
    ],
)
def test_every_kind_of_network(options, sizes, split):
    top = {"classes": 3} if options.get("include_top", True) else {}
    model = keras_vit.VisionTransformer(CONFIG, **{"image_size": 32} | top | options)
    found = extract(model, split, image_size=32)
    own = found.patch_mean
    assert (found.pooled.shape[1], own if own is None else own.shape[1]) == sizes
    assert np.isfinite(found.joined).all() and found.joined.std(axis=0).max() > 0


def test_a_network_without_patches(split):
    images = keras.Input((32, 32, 3))
    features = keras.layers.GlobalAveragePooling2D()(images)
    model = keras.Model(images, keras.layers.Dense(4)(features))
    found = extract(model, split)
    assert found.pooled.shape == (6, 3) and found.patch_mean is None
    tokens = keras_vit.VisionTransformer(
        CONFIG, image_size=32, include_top=False, pooling=None
    )
    with pytest.raises(RunError, match="no features of one row per photo"):
        extract(tokens, split)


@pytest.fixture
def computed(monkeypatch):
    """The numbers of photos that were computed, one per call."""
    computed = []

    def counting(predictor, batches, split, *described):
        computed.append(split.num_examples)
        yield from original(predictor, batches, split, *described)

    original = predicting.predictions
    monkeypatch.setattr(predicting, "predictions", counting)
    return computed


def test_features_are_computed_once(network, split, computed, tmp_path):
    extractor = Extractor(network)
    plain = extractor(split)
    first = extractor(split, cache=tmp_path / "cache")
    again = extractor(pick(split, [1, 4, 5]), cache=tmp_path / "cache")
    # The photo that is there twice is computed once.
    assert computed == [6, 5]
    np.testing.assert_allclose(first.joined, plain.joined, atol=1e-6)
    np.testing.assert_array_equal(again.joined, first.joined[[1, 4, 5]])
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_what_changed_is_computed_anew(network, split, computed, tmp_path):
    def change_a_weight():
        changed = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=7)
        changed.set_weights(network.get_weights())
        weight = changed.get_layer("encoder_norm").weights[0]
        weight.assign(weight + 1e-3)
        return changed

    for number, (model, options) in enumerate(
        [
            (network, {}),
            (network, {"mirrored": True}),
            (network, {"image_size": 48}),
            (network, {"preparation": "timm crop bicubic 0.9"}),
            (network, {"patches": False}),
            (change_a_weight(), {}),
        ],
        start=1,
    ):
        extract(model, split, cache=tmp_path, **options)
        assert len(computed) == len(list(tmp_path.iterdir())) == number
    for changed in ({"bits": 12}, {"honour_exif": False}):
        extract(network, dataclasses.replace(split, **changed), cache=tmp_path)
    assert computed[6:] == [5, 5]


def test_a_run_that_was_killed_goes_on(network, split, computed, tmp_path, monkeypatch):
    class Killed(Exception):
        pass

    def killed(*arguments):
        batches = predictions(*arguments)
        yield next(batches)
        raise Killed

    predictions = predicting.predictions
    with monkeypatch.context() as patch:
        patch.setattr(predicting, "predictions", killed)
        with pytest.raises(Killed):
            extract(network, split, cache=tmp_path, batch_size=2)
    del computed[:]
    found = extract(network, split, cache=tmp_path, batch_size=2)
    assert computed == [3]
    expected = extract(network, split)
    np.testing.assert_allclose(found.joined, expected.joined, atol=1e-6)


@pytest.mark.parametrize("damage", ["cut", "other arrays"])
def test_a_damaged_file_is_named(network, split, tmp_path, damage):
    extract(network, split, cache=tmp_path)
    [file] = tmp_path.iterdir()
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    else:
        np.savez(file, features=np.zeros((2, 3)), digests=np.zeros((3, 16), "uint8"))
    with pytest.raises(RunError, match=f"{file.name} is damaged .*: remove it"):
        extract(network, split, cache=tmp_path)


def test_long_work_is_written_now_and_then(network, split, tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "_SECONDS_BETWEEN_WRITES", 0)
    written = []
    monkeypatch.setattr(
        np, "savez", lambda path, **arrays: written.append(len(arrays["features"]))
    )
    extract(network, split, cache=tmp_path, batch_size=2)
    assert written == [2, 4, 5, 5]


def test_digests_are_of_the_content(split):
    found = digests(split)
    assert found.shape == (6, 16)
    assert len({row.tobytes() for row in found}) == 5
    np.testing.assert_array_equal(found[0], found[5])


def test_the_way_of_few_shot_probes_is_another(network, split):
    assert Extractor(network).preparation == "squash"
    usual, other = (
        extract(network, split, preparation=one).pooled
        for one in (None, features.FEW_SHOT)
    )
    assert np.abs(usual - other).max() > 1e-3
