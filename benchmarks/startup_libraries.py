"""What `benchmarks.startup` times of each library, from its import to a prediction.

A class is a route. Where a library makes a model and loads its weights in one call,
`load` is that call and `build` does nothing.
"""

import importlib
import pathlib

from benchmarks import ours, peer_models
from benchmarks.contest import row
from zoo.common.machine import peak_bytes

PHASES = ("library", "build", "load", "predict")
_PROCESS = pathlib.Path("/proc/self")
PEERS = {}


class Route:
    """A job whose steps are the phases, each done once and in their order.

    A subclass has the phases `build` and `load` (from `path` into `model`) as methods,
    and `write`, which writes the file for `load`.
    """

    file: str
    package: str

    def __init__(self, folder, sizes, image_size, parameters, memory_file=None):
        self.path = pathlib.Path(folder) / self.file
        self.sizes = sizes
        self.image_size = image_size
        self.parameters = parameters
        self.memory_file = memory_file
        self.model = None
        self._phases = iter(PHASES)

    def __call__(self):
        """Does the next phase."""
        phase = next(self._phases)
        if phase == "load" and _PROCESS.exists():
            before = _start_of_peak()
            self.load()
            pathlib.Path(self.memory_file).write_text(f"{before} {peak_bytes()}")
        else:
            getattr(self, phase)()

    def library(self):
        """Imports the library; what it is built on is imported already."""
        importlib.import_module(self.package)

    def predict(self):
        """Computes the logits of one image."""
        self.model.predict(ours.random_images(1, self.image_size), verbose=0)


class KerasVit(Route):
    """A built model and `load_released_weights`."""

    file = "keras_vit.npz"
    package = "keras_vit"

    def build(self):
        self.model = ours.build(self.sizes, self.image_size)

    def load(self):
        import keras_vit

        keras_vit.load_released_weights(self.model, self.path)

    def write(self):
        import keras_vit

        self.build()
        # New heads are zeros, which is warned of where they are loaded.
        self.model.get_layer("head").bias.assign_add([1.0] * ours.CLASSES)
        keras_vit.save_released_weights(self.model, self.path)


class KerasVitWeights(KerasVit):
    """A model made with `weights=` and its `Predictor`."""

    def build(self):
        pass

    def load(self):
        import keras_vit

        config = keras_vit.ViTConfig(**self.sizes)
        self.model = keras_vit.VisionTransformer(config, self.path)

    def predict(self):
        import keras_vit

        images = ours.random_images(1, self.image_size)
        keras_vit.Predictor(self.model)(images)


@row(PEERS, "keras-hub", "keras-hub", ("keras",))
class KerasHub(Route):
    """A built model and `load_weights` of an HDF5 file."""

    file = "keras_hub.weights.h5"
    package = "keras_hub"

    def build(self):
        self.model = peer_models.keras_hub(self.sizes, self.image_size, self.parameters)

    def load(self):
        self.model.load_weights(self.path)

    def write(self):
        self.build()
        self.model.save_weights(self.path)


@row(PEERS, "keras-hub-preset", "keras-hub preset", ("keras",))
class KerasHubPreset(KerasHub):
    """`from_preset`, as its users load a released model."""

    file = "keras_hub"

    def build(self):
        pass

    def load(self):
        import keras_hub

        self.model = keras_hub.models.ViTImageClassifier.from_preset(str(self.path))

    def write(self):
        super().build()
        self.model.save_to_preset(str(self.path))


@row(PEERS, "keras-hub-model", "keras-hub .keras", ("keras",))
class KerasHubModel(KerasHub):
    """`load_model` of a whole `.keras` file."""

    file = "keras_hub.keras"

    def build(self):
        pass

    def load(self):
        import keras

        self.model = keras.saving.load_model(self.path)

    def write(self):
        super().build()
        self.model.save(self.path)


@row(PEERS, "vit-keras", "vit-keras", ("keras",))
class VitKeras(KerasVit):
    """A built model and its own reader of released `.npz` files."""

    package = "vit_keras.vit"

    def build(self):
        self.model = peer_models.vit_keras(self.sizes, self.image_size, self.parameters)

    def load(self):
        from vit_keras.utils import load_weights_numpy

        grid = self.image_size // self.sizes["patch_size"]
        load_weights_numpy(self.model, self.path, True, grid, grid)

    def write(self):
        route = KerasVit(self.path.parent, self.sizes, self.image_size, self.parameters)
        route.write()


@row(PEERS, "timm", "timm", ("torch",))
class Timm(Route):
    """A built model and `load_checkpoint` of a safetensors file."""

    file = "timm.safetensors"
    package = "timm"

    def build(self):
        self.model = peer_models.timm(self.sizes, self.image_size, self.parameters)

    def load(self):
        from timm.models import load_checkpoint

        load_checkpoint(self.model, str(self.path))

    def predict(self):
        import torch

        images = torch.from_numpy(ours.random_images(1, self.image_size))
        self.model.eval()
        with torch.inference_mode():
            self.model(images.permute(0, 3, 1, 2))

    def write(self):
        import safetensors.torch

        self.build()
        safetensors.torch.save_file(self.model.state_dict(), self.path)


@row(PEERS, "transformers", "transformers", ("torch",))
class Transformers(Timm):
    """`from_pretrained`, as its users load a released model."""

    file = "transformers"
    package = "transformers"

    def build(self):
        pass

    def load(self):
        from transformers import ViTForImageClassification

        self.model = ViTForImageClassification.from_pretrained(self.path)

    def write(self):
        model = peer_models.transformers(self.sizes, self.image_size, self.parameters)
        model.save_pretrained(self.path)


def write(route, **settings):
    """Writes a route's file, unless it is there."""
    opened = globals()[route](**settings)
    if not opened.path.exists():
        opened.write()
    return lambda: None


def _start_of_peak():
    """Forgets the most memory this process held; returns the bytes it holds."""
    (_PROCESS / "clear_refs").write_text("5")
    # The process now holds the most that it ever held.
    return peak_bytes()
