"""The metadata of exported files: what they say of a model besides shapes.

These are the class names, how photos come to its size, and what its head ends in.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from zoo.common.limits import check_image_size
from zoo.network.head import ONE_CLASS, check_thresholds
from zoo.network.preparation import check_bits

# A TFLite file, a zip archive as well, has these files. A SavedModel has the facts in
# `assets.extra`, an ONNX file in its metadata.
FACTS, LABELS = "keras_vit.json", "labels.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a model in the metadata of its file, where each is a text.

    Args:
        activation: str, of the head: "linear", "softmax" or "sigmoid".
        preparation: str, see `zoo.photos.prepare`.
        problem_type: str, what the outputs answer, as in `zoo.network.head`.
        bits: int or None, of photos in files of 16 bits, see `zoo.photos.decode`.
        image_size: (height, width) that photos are brought to, if the file takes images
            of any size; else None, as of a model without positions.
        thresholds: tuple of float, see `zoo.network.head.Answers`.
        size_step: (height, width) that the sides of images are multiples of, None of a
            file for images of one size.
    """

    activation: str = "linear"
    preparation: str = "squash"
    problem_type: str = ONE_CLASS
    bits: int | None = None
    image_size: tuple[int, int] | None = None
    size_step: tuple[int, int] | None = None
    thresholds: tuple[float, ...] = ()

    def texts(self) -> dict[str, str]:
        """Returns a dict of str: `activation`, `preparation`, and what is unusual."""
        kept = {"activation", "preparation"}
        return {
            name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in vars(self).items()
            if name in kept or value != getattr(Facts, name)
        }

    @classmethod
    def of_texts(cls, texts: Any) -> "Facts":
        """Returns the facts that `texts` gave; refuses others."""
        names = vars(cls())
        if not isinstance(texts, dict) or not all(
            isinstance(texts.get(name, ""), str) for name in names
        ):
            raise ValueError("its facts are not a table of texts")
        said = {name: texts[name] for name in names if name in texts}
        if "bits" in said:
            said["bits"] = check_bits(int(said["bits"]))
        for name in {"image_size", "size_step"} & said.keys():
            height, width = map(int, said[name].split(","))
            said[name] = check_image_size((height, width))
        if "thresholds" in said:
            said["thresholds"] = check_thresholds(said["thresholds"].split(","))
        return cls(**said)


@dataclasses.dataclass(frozen=True)
class ExportedModel(Facts):
    """A model in the runtime of its format.

    Args:
        run: function from float32 images (batch, height, width, channels) in [-1, 1]
            to float32 outputs (batch, ...).
        version: str, of the runtime.
        image_shape: (height, width, channels); of a file for images of any size those
            that photos are brought to.
        output_shape: tuple, that of the outputs of some images, (None, classes).
        output: str, what the outputs are called: by our writers "logits",
            "probabilities" or "features".
        one_by_one: bool, whether it takes no batches, so that 8 images are 8 calls.
        class_names: tuple of str in the order of the outputs, None where unknown.
        features: function like `run` to the input of the head, None without one.
        **facts: those of `Facts`.
    """

    run: Callable
    version: str
    image_shape: tuple[int, ...]
    output_shape: tuple
    output: str
    one_by_one: bool = False
    class_names: tuple[str, ...] | None = None
    features: Callable | None = None

    @property
    def size(self) -> int:
        """The length of an output."""
        return self.output_shape[-1]


def texts(names: Any) -> tuple[str, ...]:
    """Returns names of classes in metadata; refuses what is not a list of texts."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its class_names are not a list of texts")
    return tuple(names)
