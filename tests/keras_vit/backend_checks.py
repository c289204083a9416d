"""Checks that a backend computes what another one wrote; run by `test_backends`.

All share one small shape: JAX compiles every operation anew for another.
"""

import pathlib
import sys
import tempfile

import keras
import numpy as np

# What a fresh process prints and imports for it, `test_backends` reads.
print("IMPORTED", file=sys.stderr)
import keras_vit  # noqa: E402

print("QUIET", file=sys.stderr)
found = {"tensorflow", "torch", "train"} & set(sys.modules) - {keras.config.backend()}
assert not found, found

HERE = pathlib.Path(__file__).parent
sys.path += [str(HERE), str(HERE / "layers"), str(HERE.parent)]

import test_positions  # noqa: E402
import test_predictor  # noqa: E402
import test_remat  # noqa: E402
from harness import flags, gradients, numpy  # noqa: E402

from keras_vit import explain  # noqa: E402

FAMILIES = ("registers", "rotary", "relative_bias", "attention_pooling")


class Checks:
    """Each method is a check of what `test_backends.written` has put into a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.written = dict(np.load(folder / "written.npz"))
        self.images = self.written["images"]
        self.plain = self.load("plain")

    def load(self, kind):
        return keras.saving.load_model(self.folder / f"{kind}.keras")

    def same(self, found, name, tolerance=1e-5):
        np.testing.assert_allclose(numpy(found), self.written[name], atol=tolerance)

    def models(self):
        """Attention, both embeddings of positions, symmetric padding, int8."""
        for kind in ("plain", "2d", "relative", "hybrid", "int8", *FAMILIES):
            self.same(self.load(kind)(self.images), kind)

    def what_is_inside(self):
        self.same(explain.attention_maps(self.plain, self.images), "attention")
        self.same(explain.gradient_attention(self.plain, self.images), "relevance")

    def training(self):
        """Gradients, through the GELU of training too."""
        found = gradients(self.plain, self.images, training=True)
        for number, gradient in enumerate(found):
            self.same(gradient, f"gradient_{number}", 1e-4)

    def remat_with_dropout(self):
        test_remat.test_gradients_and_seeds_are_those_without(test_remat.RATES, False)
        test_remat.test_less_is_kept_for_the_gradient()

    def positions_of_users(self):
        test_positions.test_scores_of_a_users_positions_may_have_an_axis_of_images()

    def the_least_arithmetic(self):
        block = self.plain.get_layer("encoder_block_1")
        assert self.plain.class_token_block is block
        self.same(self.plain(self.images), "plain")
        first = block(self.written["tokens"], class_token_only=True)
        self.same(first, "first")

    def predictor(self):
        test_predictor.test_answers_as_the_model_does(self.plain, False)
        head = self.plain.get_layer("head")
        before = head.get_weights()
        for engine in ("keras", "onnxruntime"):
            predictor = keras_vit.Predictor(self.plain, engine=engine)
            self.same(predictor(self.images), "plain")
            head.set_weights([np.zeros_like(weight) for weight in before])
            np.testing.assert_array_equal(predictor(self.images), 0)
            head.set_weights(before)

    def photos(self):
        """One alone, and more of them than a batch has."""
        photo = self.written["photo"]
        for photos in (photo, [photo] * 5):
            answers = keras_vit.classify(self.plain, photos, batch_size=2)
            self.same(keras_vit.embed(self.plain, photos)[-1:], "embedded")
            names = [name for _, name, _ in answers[-1]]
            assert names == self.written["answer_names"].tolist()
            self.same([probability for *_, probability in answers[-1]], "answer")
        assert len(answers) == 5

    def released_files(self):
        """Read and written, bit for bit."""
        source = self.folder / "plain.npz"
        model = keras_vit.load_model(source)
        self.same(model(self.images), "plain")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "again.npz"
            keras_vit.save_released_weights(model, path)
            arrays, again = dict(np.load(source)), dict(np.load(path))
        assert arrays.keys() == again.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(again[key], array, err_msg=key)

    def another_image_size(self):
        for kind in ("plain", "2d", *FAMILIES):
            resized = keras_vit.at_image_size(self.load(kind), (24, 16))
            images = np.swapaxes(self.images, 1, 2)
            self.same(resized(images), f"{kind}_resized")
            of_any_size = keras_vit.at_image_size(self.load(kind), (None, None))
            self.same(of_any_size(self.images), kind)
            self.same(of_any_size(images), f"{kind}_resized")
            self.same(keras_vit.Predictor(of_any_size)(images), f"{kind}_resized")

    def frozen(self):
        """What is frozen in a model of another backend is so in every copy."""
        model = self.load("frozen")
        expected = self.written["flags"].tolist()
        assert False in expected and True in expected
        for copy in (
            model,
            keras.models.clone_model(model),
            keras_vit.at_image_size(model, 16),
        ):
            assert list(flags(copy).values()) == expected

    def int8(self):
        quantized, loaded = keras_vit.quantize_weights(self.plain), self.load("int8")
        with tempfile.TemporaryDirectory() as folder:
            quantized.save(f"{folder}/int8.keras")
            again = keras.saving.load_model(f"{folder}/int8.keras")
        for one, other, third in zip(
            loaded.weights, quantized.weights, again.weights, strict=True
        ):
            assert one.dtype == other.dtype == third.dtype
            np.testing.assert_array_equal(numpy(one), numpy(other), err_msg=one.path)
            np.testing.assert_array_equal(numpy(one), numpy(third), err_msg=one.path)


if __name__ == "__main__":
    checks = Checks(pathlib.Path(sys.argv[1]))
    for name, check in vars(Checks).items():
        if name not in ("load", "same") and not name.startswith("_"):
            print(name, flush=True)
            check(checks)
