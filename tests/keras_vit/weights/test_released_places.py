"""Files of released names hold every weight of a model, or are not written."""

import functools

import keras
import numpy as np
import pytest
from harness import numpy, randomize
from small_models import made

import keras_vit
import zoo
from keras_vit.models.base import Model
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

BIT = BiTConfig((1, 1))


def bit(**options):
    model = BiTResNet(BIT, image_size=32, classes=5, **options)
    randomize(model)
    return model


KINDS = {"vit": made, "bit": bit}
save, load = keras_vit.save_released_weights, keras_vit.load_released_weights


@functools.cache
def shared(kind):
    """A model of the kind, built once: not to be changed."""
    return KINDS[kind]()


def with_another_head(model):
    features = model.get_layer("pooling").output
    return keras.Model(model.input, keras.layers.Dense(7, name="head")(features))


def around(model):
    return keras.Sequential([keras.Input(model.input_shape[1:]), model])


# Graphs that do not know which network they are.
GRAPHS = {
    "another head": with_another_head,
    "a part": lambda model: keras.Model(model.input, model.get_layer("pooling").output),
    "a clone": keras.models.clone_model,
    "a wrapper": around,
    "another model": lambda _: keras.Sequential([keras.Input((2,))]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", GRAPHS.values(), ids=GRAPHS)
def test_graphs_that_do_not_know_their_network_are_refused(kind, change, tmp_path):
    whole = shared(kind)
    path = save(whole, tmp_path / "whole.npz")
    graph = change(whole)
    for refused in (
        lambda: save(graph, tmp_path / "graph.npz"),
        lambda: load(graph, path),
    ):
        with pytest.raises(ValueError, match="does not know .*rebuild.*Model.save"):
            refused()
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(zoo.CheckpointError, match="must end in .npz"):
        save(whole, tmp_path / "model.h5")


@pytest.mark.parametrize("kind", KINDS)
def test_lora_is_written_as_the_model_computes(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    make = KINDS[kind]
    tuned, plain = make(), make()
    images = np.random.default_rng(0).uniform(-1, 1, (2, *tuned.input_shape[1:]))
    if kind == "vit":
        layer = tuned.get_layer("encoder_block_0").attention.query
    else:
        layer = tuned.get_layer("block1_unit01").conv2
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    expected = numpy(tuned(images))
    assert np.abs(expected - numpy(plain(images))).max() > 1e-3
    path = "~/model.npz"
    assert save(tuned, path) == tmp_path / "model.npz"
    assert load(plain, path) is plain
    np.testing.assert_allclose(numpy(plain(images)), expected, atol=2e-5)
    with pytest.raises(ValueError, match="LoRA's products beside the kernel of .*load"):
        load(tuned, path)


def test_a_weight_beside_those_with_names_is_refused(tmp_path):
    model = shared("vit")
    images = keras.Input(model.input_shape[1:])
    graph = Model(
        images, keras.layers.Dense(2)(model(images)), description=model.description
    )
    with pytest.raises(ValueError, match="has weights without released names"):
        save(graph, tmp_path / "model.npz")
