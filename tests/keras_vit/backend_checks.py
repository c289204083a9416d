"""What small models compute and keep on a backend; `test_backends` compares them.

All share one small shape: JAX compiles every operation anew for another.
"""

import pathlib
import sys

import keras
import numpy as np

# `test_backends` reads what a fresh process prints and imports here.
print("IMPORTED", file=sys.stderr)
import keras_vit  # noqa: E402

print("QUIET", file=sys.stderr)
imported = {"tensorflow", "torch", "train"} & set(sys.modules)

HERE = pathlib.Path(__file__).parent
sys.path += [str(HERE), str(HERE / "layers"), str(HERE.parent)]

from harness import flags, gradients, normal, numpy, randomize  # noqa: E402

from keras_vit import explain  # noqa: E402

SIZE = (16, 24)


def computed(folder):
    """Returns what the models saved in a folder give, arrays by name."""
    images = normal((2, *SIZE, 3))
    models = {
        path.stem: keras.saving.load_model(path) for path in folder.glob("*.keras")
    }
    plain = models["plain"]
    found = {"attention": explain.attention_maps(plain, images)}
    found["relevance"] = explain.gradient_attention(plain, images)
    for kind, model in models.items():
        found[kind] = numpy(model(images))
        if kind not in ("relative", "registers", "hybrid", "int8", "frozen"):
            found |= other_sizes(kind, model, images)
    # Through the GELU of training too.
    slopes = gradients(plain, images, training=True)
    found |= {f"gradient {number}": slope for number, slope in enumerate(slopes)}
    return found | kept(folder, models) | answers(plain, images) | segmented(plain)


def segmented(plain):
    """What a step of training makes of a segmenter with masked attention."""
    # Less than one part of the steps, in which all queries are masked.
    options = {"num_queries": 3, "query_blocks": 1, "masked_steps": 9}
    model = keras_vit.segmenter(plain, classes=3, head="eomt", **options)
    randomize(model)
    images = normal((2, *SIZE, 3))
    masks = (images[..., 0] > 0) + 2 * (images[..., 1] > 1)
    masks = np.where(masks == 3, 255, masks).astype("uint8")
    model.compile(keras.optimizers.SGD(0.01), keras_vit.MaskLoss())
    history = model.fit(images, masks, verbose=0)
    found = {f"segmented {key}": numpy(one) for key, one in model(images).items()}
    linear = keras_vit.segmenter(plain, classes=3)
    randomize(linear)
    linear.compile("sgd", "mse")
    return found | {
        "gradient of masks": np.array(history.history["loss"]),
        "segmented linear": linear.predict(images, verbose=0),
    }


def other_sizes(kind, model, images):
    transposed = np.swapaxes(images, 1, 2)
    resized = keras_vit.at_image_size(model, SIZE[::-1])
    of_any_size = keras_vit.at_image_size(model, (None, None))
    return {
        f"{kind}, resized": numpy(resized(transposed)),
        f"{kind}, of any size": numpy(of_any_size(images)),
        f"{kind}, of any size, resized": numpy(of_any_size(transposed)),
        f"{kind}, predicted": keras_vit.Predictor(of_any_size)(transposed),
    }


def answers(plain, images):
    """What is answered of images and of photos: more of them than a batch has."""
    photo = np.random.RandomState(5).randint(0, 256, (40, 33, 3), np.uint8)
    found = {"embedded": keras_vit.embed(plain, photo)}
    *_, answer = keras_vit.classify(plain, [photo] * 5, batch_size=2)
    _, names, found["answer"] = zip(*answer, strict=True)
    assert sorted(names) == ["Käfer", "cat", "dog"]
    head = plain.get_layer("head")
    before = head.get_weights()
    for engine in ("keras", "onnxruntime"):
        predictor = keras_vit.Predictor(plain, engine=engine)
        found[f"predicted by {engine}"] = predictor(images)
        head.set_weights([np.zeros_like(weight) for weight in before])
        np.testing.assert_array_equal(predictor(images), 0)
        head.set_weights(before)
    return found


def kept(folder, models):
    """What copies, quantised models and files keep, bit for bit."""
    frozen, source = models["frozen"], folder / "plain.npz"
    found = {}
    for number, copy in enumerate(
        (
            frozen,
            keras.models.clone_model(frozen),
            keras_vit.at_image_size(frozen, 16),
        )
    ):
        found[f"flags {number}"] = np.array(flags(copy))
    again = folder / f"{keras.backend.backend()}.npz"
    keras_vit.save_released_weights(keras_vit.load_model(source), again)
    with np.load(again) as arrays:
        found |= {f"released {key}": arrays[key] for key in arrays.files}
    int8 = keras_vit.quantize_weights(models["plain"])
    for number, weight in enumerate(int8.weights):
        value = keras.ops.convert_to_numpy(weight)
        found[f"int8 {number} {value.dtype}"] = value
    return found


if __name__ == "__main__":
    assert not imported - {keras.config.backend()}, imported
    import test_remat

    folder = pathlib.Path(sys.argv[1])
    np.savez(folder / "found.npz", **computed(folder))
    test_remat.test_gradients_and_seeds_are_those_without(test_remat.RATES, False)
    test_remat.test_less_is_kept_for_the_gradient()
