"""Inference from arrays to arrays."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.runtimes.automatic import Automatic
from keras_vit.runtimes.converted import Converted
from keras_vit.runtimes.keras import Compiled
from keras_vit.runtimes.requirements import begins_with, check
from keras_vit.runtimes.staleness import Settings
from keras_vit.structure import check_outputs, warn_of_pixels
from keras_vit.structure.image_sizes import check_images_shape
from keras_vit.structure.numbers import OF_PHOTOS, check_numbers
from zoo.network import positive_int
from zoo.runtimes import AUTO, KERAS, RUNTIMES, check_choice


class Predictor:
    """A compiled forward pass from NumPy arrays to NumPy arrays.

    `keras.Model.predict` sets up a data pipeline and callbacks at each call, which
    takes longer than a small model does. This keeps the compiled function alone, or the
    model in a runtime that is faster on some machines (docs/performance.md).

    Args:
        model: `keras.Model` with one input and one output.
        batch_size: int, images computed at a time.
        jit_compile: bool, whether XLA compiles the model on TensorFlow, which takes
            seconds to minutes and then is faster on some machines and slower on others
            (docs/performance.md). JAX always compiles, torch never. XLA compiles for
            one number of images: `batch_size`, and any smaller one that comes before.
        engine: str, what computes: `"keras"`, the compiled model itself, which reads
            its weights anew at each call; or a runtime that it is converted for at the
            first call, which takes seconds: `"litert"` (on TensorFlow, for images of
            one size, `batch_size` of them at a time), `"onnxruntime"`, `"openvino"` or
            `"openvino_bfloat16"` (models of `keras_vit`). Each call compares all
            weights with those of the conversion, and where a single value differs the
            model is converted anew.

            `"auto"` begins with Keras. Once its batches have taken as many seconds as
            the conversions are likely to (1 s and 5 s per 100 million weights each),
            the model is converted for ONNX Runtime and OpenVINO, where they are
            installed, and the fastest on a batch of the call computes from then on;
            one whose answers differ from Keras's by more than 2e-5 of the largest (5e-2
            in bfloat16; in int8 2e-1, from OpenVINO's) is refused. The choice is kept
            in the cache folder (`engines`) for the shapes of the model and the images
            and the machine. New weights begin with Keras again. It stays with Keras
            where that is on a GPU or TPU, or in half precision by the layers' policies,
            where four times the memory of the weights is not left, and with
            `jit_compile`. After `expect` a conversion is weighed against the images
            that are left. In int8 it begins with OpenVINO; after `expect` it tries
            `"openvino_bfloat16"` and LiteRT, whose conversion takes 4 s and 20 s per
            100 million weights with eight times their memory, and one engine answers
            all images.
        precision: str, what matrices are multiplied in. `"float32"`: by the engine
            `"keras"` in what the dtype policies of the layers say. `"bfloat16"`: by
            `"keras"` and `"openvino"`, on processors that have instructions for it;
            outputs are of three digits. `"int8"`: by `"openvino"` and `"litert"`, with
            weights of one scale per channel, and one scale per token (of OpenVINO per
            192 of its values) that is computed at run time, and by
            `"openvino_bfloat16"`, which has all else in bfloat16. Of an even number
            of images each half is computed by half of the processors.
        announce: function that is called with a str before `"auto"` converts the model,
            and with what it chose and why.

    Attributes:
        engine: str, what computes now: one of the above, and never `"auto"`.
        trials: dict of what `"auto"` tried: {engine: seconds of a batch, or why it is
            refused}.

    Call arguments:
        images: array (images, height, width, channels) as the model takes them: ours
            what `preprocess_input` returns. Images in [0, 255] are warned of once.

    Returns:
        Array of what the model puts out, images first.

    Raises:
        ValueError: the model is not of one input and one output, the images are not of
            its shape, or an argument does not fit the model or the backend.
        ModuleNotFoundError: a package of the engine is not installed.

    Source:
        docs/performance.md.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> predictor = Predictor(model, batch_size=2)
        >>> predictor(np.zeros((3, 32, 32, 3), "float32")).shape
        (3, 10)
    """

    def __init__(
        self,
        model: keras.Model,
        batch_size: int = 32,
        jit_compile: bool = False,
        *,
        engine: str = AUTO,
        precision: str = "float32",
        announce: Callable[[str], None] | None = None,
    ):
        batch_size = positive_int(batch_size, "batch_size")
        check_outputs(model)
        check_choice(engine, precision)
        precisions = RUNTIMES[KERAS].precisions
        if jit_compile and (engine not in (AUTO, KERAS) or precision not in precisions):
            raise ValueError(
                f"jit_compile is of engine={KERAS!r} in "
                f"{' or '.join(precisions)}, not of engine={engine!r} "
                f"and precision={precision!r}: leave jit_compile out."
            )
        engine = begins_with(model, engine, precision, jit_compile)
        check(model, engine, precision)
        self.model = model
        self.batch_size = batch_size
        self.precision = precision
        if engine == AUTO:
            make = functools.partial(Automatic, announce=announce)
        elif engine == KERAS:
            make = functools.partial(Compiled, jit_compile=jit_compile)
        else:
            make = functools.partial(Converted, engine=engine)
        self._make = functools.partial(make, model, batch_size, precision=precision)
        self._answer: Any = None
        self._begin()
        self._has_warned = False
        self._lock = threading.Lock()
        self._checked = None

    def _begin(self):
        # Before what is made of them, during which another thread may change them.
        self._settings = Settings(self.model)
        left = getattr(self._answer, "left", None)
        self._answer = self._make()
        self._expect(left)

    def _expect(self, images):
        if isinstance(self._answer, Automatic):
            self._answer.left = images

    @property
    def engine(self) -> str:
        """What computes, which "auto" may change after a call."""
        return self._answer.engine

    @property
    def trials(self) -> dict:
        """What "auto" tried: {engine: seconds of a batch, or why it is refused}."""
        return getattr(self._answer, "trials", {})

    def expect(self, images: int | None) -> None:
        """Tells "auto" how many images will follow, in all calls together.

        Then it converts the model at the first batch where that pays for so many, and
        not at all for a few. Other engines need not know.

        Args:
            images: int, of all calls that follow, after which it converts nothing until
                it is told of more; None where that is not known any more.

        Example:
            >>> predictor = Predictor(VisionTransformer("ViT-Ti_16", image_size=32))
            >>> predictor.expect(10_000)
        """
        if images is not None:
            images = positive_int(images, "images")
        with self._lock:
            self._expect(images)

    def __call__(self, images):
        images = check_numbers(images, "images", OF_PHOTOS)
        images = np.asarray(images, dtype=self.model.inputs[0].dtype)
        if images.shape != self._checked:
            check_images_shape(self.model, images.shape)
            self._checked = images.shape
        if not self._has_warned:
            self._has_warned = warn_of_pixels(self.model, images)
        # Runtimes take one call at a time, and "auto" changes between them.
        with self._lock:
            if not self._settings.hold():
                self._begin()
            return self._answer(images)
