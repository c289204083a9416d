"""Features of photos by a network: what its head reads, and the mean of its patches."""

import dataclasses
import os
from collections.abc import Generator

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.layers import ClassTokenAndPatchPooling, PatchPooling, poolings
from keras_vit.models.base import Model, of_features
from keras_vit.structure import (
    head_of,
    num_prefix_tokens,
    pooled_features,
    preparation_of,
)
from keras_vit.structure.image_sizes import own_image_size
from train.common import predictors
from train.common.errors import RunError
from train.data import pipeline
from train.data.sources.splits import Split
from train.data.transforms.preprocessing import resized
from train.scoring import predicting
from train.scoring.feature_cache import cached
from zoo.network import pair

# big_vision's evaluator of few-shot probes resizes to 256 for 224.
FEW_SHOT = "squashed to 8/7 of the size, of which the centre is cut out"


@dataclasses.dataclass(frozen=True)
class Features:
    """Features of photos, a row each.

    Attributes:
        labels: integers (photos,).
        pooled: float32 (photos, size), what the network's head reads: the class token,
            or what the network has instead.
        patch_mean: float32 (photos, hidden size), the mean of the patches' tokens after
            the last norm; None where the network has none, or `pooled` has it.
    """

    labels: np.ndarray
    pooled: np.ndarray
    patch_mean: np.ndarray | None = None

    @property
    def joined(self) -> np.ndarray:
        """What the head reads and, where there is one, the mean of the patches."""
        if self.patch_mean is None:
            return self.pooled
        return np.concatenate([self.pooled, self.patch_mean], axis=1)


class Extractor:
    """Computes the features of splits, compiled once.

    Args:
        network: `keras.Model` from images in [-1, 1] to the outputs of its head, or to
            features.
        image_size: int or (height, width) in pixels, to which position embeddings are
            resized; by default that of the network.
        preparation: str, how photos come to that size, see `zoo.photos.prepare`, or
            `FEW_SHOT`; by default as the network says. Training squashes all.
        patches: bool, whether the mean of the patches is computed too. Without it the
            last block computes the class token alone.
        batch_size: int, photos computed at a time.
        engine: str, see `keras_vit.Predictor`.
        precision: str, see `keras_vit.Predictor`.

    Call arguments:
        split: `train.data.sources.Split`.
        mirrored: bool, whether photos are mirrored, left and right.
        through: (height, width) that photos have on their way to the network's size, as
            in a model of several networks; by default they come from their own.
        cache: path of a folder with a file of the features of earlier calls, known by
            the weights, the view and the contents of the photos; None for none.

    Returns:
        `Features`.

    Raises:
        RunError: the network has no features of one row per photo, or computes numbers
            that are not finite.

    Source:
        Dosovitskiy et al., arXiv 2010.11929, section 4.1; Oquab et al., arXiv
        2304.07193, section 7.1, for the mean of the patches.

    Example:
        >>> extractor = Extractor(network, image_size=288)  # doctest: +SKIP
        >>> train, test = extractor(source.train), extractor(source.test)
        ... # doctest: +SKIP
    """

    def __init__(
        self,
        network: keras.Model,
        *,
        image_size: int | tuple[int, int] | None = None,
        preparation: str | None = None,
        patches: bool = True,
        batch_size: int = 32,
        engine: str = "auto",
        precision: str = "float32",
    ):
        size = pair(image_size or own_image_size(network), "image_size")
        if network.input_shape[1:3] != size:
            network = keras_vit.at_image_size(network, size)
        self.preparation = preparation or preparation_of(network)
        self._pooled_size = pooled_tensor(network).shape[-1]
        model = features_model(network, patches)
        self.predictor = predictors.predictor(model, batch_size, engine, precision)

    def __call__(
        self,
        split: Split,
        *,
        mirrored: bool = False,
        through: tuple[int, int] | None = None,
        cache: str | os.PathLike | None = None,
    ) -> Features:
        """Returns the features of a split, in its order."""
        rows = rows_of(
            self.predictor,
            split,
            preparation=self.preparation,
            mirrored=mirrored,
            through=through,
            cache=cache,
        )
        patch_mean = rows[:, self._pooled_size :]
        return Features(
            split.labels(),
            rows[:, : self._pooled_size],
            patch_mean if patch_mean.shape[1] else None,
        )


def extract(
    network: keras.Model,
    split: Split,
    *,
    image_size: int | tuple[int, int] | None = None,
    mirrored: bool = False,
    preparation: str | None = None,
    patches: bool = True,
    cache: str | os.PathLike | None = None,
    batch_size: int = 32,
    engine: str = "auto",
    precision: str = "float32",
) -> Features:
    """Returns the `Features` of one split in one view, from one forward pass.

    The arguments are those of `Extractor`, which compiles once for several splits.
    """
    extractor = Extractor(
        network,
        image_size=image_size,
        preparation=preparation,
        patches=patches,
        batch_size=batch_size,
        engine=engine,
        precision=precision,
    )
    return extractor(split, mirrored=mirrored, cache=cache)


def rows_of(
    predictor: keras_vit.Predictor,
    split: Split,
    *,
    preparation: str,
    mirrored: bool = False,
    through: tuple[int, int] | None = None,
    cache: str | os.PathLike | None = None,
) -> np.ndarray:
    """Returns the outputs of a predictor for a split, float32 (photos, size).

    The arguments are those of `Extractor`.
    """
    through = None if through == predictor.model.input_shape[1:3] else through

    def compute(part: Split) -> Generator[np.ndarray]:
        batches = _batches(predictor, part, preparation, mirrored, through)
        for _, outputs in predicting.predictions(predictor, batches, part, "features"):
            yield outputs.astype(np.float32)

    if cache is None:
        return np.concatenate([*compute(split)])
    view = f"{preparation}, {mirrored}, {predictor.precision}"
    view += f", through {through}" if through else ""
    return cached(cache, predictor.model, view, split, compute)


def _batches(predictor, split, preparation, mirrored, through):
    size = predictor.model.input_shape[1:3]
    settings = {
        "image_size": through or size,
        "preparation": preparation,
        "finish": resized(size) if through else None,
    }
    if preparation == FEW_SHOT:
        settings = {"image_size": tuple(round(side * 8 / 7) for side in size)}
    batches = pipeline.evaluation_batches(
        split, batch_size=predictor.batch_size, **settings
    )
    if preparation == FEW_SHOT:
        crop = tf.image.resize_with_crop_or_pad
        batches = batches.map(lambda images, labels: (crop(images, *size), labels))
    if mirrored:
        batches = batches.map(lambda images, labels: (images[:, :, ::-1], labels))
    return batches


def features_model(network: keras.Model, patches: bool = True) -> keras.Model:
    """Returns the model of a network's features, which shares its weights.

    The outputs are what the head reads and, with `patches`, the mean of the patches'
    tokens behind that, where the network has such and its head does not read it.
    """
    pooled = pooled_tensor(network)
    own = [layer for layer in network.layers if poolings.kind_of_layer(layer)]
    kind = poolings.kind_of_layer(own[-1]) if own and patches else None
    description = getattr(network, "description", None)
    # The others have the mean in `pooled`, or no tokens.
    if kind not in ("token", "map", "distilled"):
        return network if pooled is network.outputs[0] else of_features(network, pooled)
    tokens, prefix = own[-1].input, num_prefix_tokens(network)
    if kind == "token" and pooled is own[-1].output:
        # This is what a network with this pooling is; converted models know the layer.
        joined = ClassTokenAndPatchPooling(prefix, name=own[-1].name)(tokens)
        if description is not None:
            description = dataclasses.replace(description, pooling="token_and_gap")
    else:
        mean = PatchPooling(prefix, name="patch_mean")(tokens)
        joined = keras.layers.Concatenate(name="pooled_and_patches")([pooled, mean])
        description = None
    return Model(network.inputs[0], joined, name=network.name, description=description)


def pooled_tensor(network: keras.Model) -> keras.KerasTensor:
    """Returns the tensor (photos, size) of what a network's head reads."""
    pooled = pooled_features(network)
    if pooled is None and head_of(network) is None:
        pooled = network.outputs[0]
    if pooled is None or len(pooled.shape) != 2:
        raise RunError(
            f"The model {network.name} has no features of one row per photo: pass one "
            "that ends in a head, a pooling or pre_logits."
        )
    return pooled
