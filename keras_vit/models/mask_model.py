"""The class of models with queries for masks: how `fit` trains them."""

import itertools
from typing import Any

import keras
from keras import ops

from keras_vit.layers import MaskAnnealing, TransformerBlock, UpscaleBlock
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.models.base import Model
from keras_vit.models.mask_loss import MaskLoss
from keras_vit.models.semantic_map import semantic_map


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskModel(Model):
    """A `Model` of class and mask logits, compiled with `MaskLoss` for `fit`.

    Metrics, such as a `keras.metrics.MeanIoU` with `sparse_y_pred=False`, are given the
    semantic map at the size of their labels. With a `MaskAnnealing` layer training
    masks the attention of queries, and predicts masks before every block with queries,
    for losses of their own.

    Args:
        *args: inputs and outputs of `keras.Model`.
        **kwargs: see `Model`.

    Source:
        Kerssies et al., arXiv 2503.19108, sections 3.2 and 3.3.

    Example:
        >>> backbone = VisionTransformer("ViT-Ti_16", image_size=(32, 48))
        >>> model = segmenter(backbone, classes=5, head="eomt", num_queries=10)
        >>> model.compile("adam", MaskLoss())
        >>> images, masks = np.zeros((2, 32, 48, 3)), np.zeros((2, 32, 48), "uint8")
        >>> history = model.fit(images, masks, verbose=0)
    """

    # Keras takes a class for a functional one that has literally these two.
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # XLA of TensorFlow cannot call SciPy for the matching.
        self.supports_jit = keras.backend.backend() != "tensorflow"

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        annealing = [one for one in self.layers if isinstance(one, MaskAnnealing)]
        if not (training and annealing):
            return super().call(inputs, training=training, mask=mask, **kwargs)
        masked = _MaskedBlocks(self, annealing[0], inputs)
        with running(watcher=Watcher(block=masked.block)):
            outputs = super().call(inputs, training=training, mask=mask, **kwargs)
        annealing[0].count.assign_add(1)
        return {**outputs, "intermediate": masked.predictions}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        if not isinstance(self.loss, MaskLoss):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is not None:
            raise ValueError(
                f"{self.name} is trained without weights of photos: leave "
                "sample_weight and class_weight out of fit."
            )
        return sum(self.losses, self.loss(y, y_pred))

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict:
        if isinstance(self.loss, MaskLoss):
            y_pred = semantic_map(y_pred, ops.shape(y)[1:3])
        return super().compute_metrics(x, y, y_pred, sample_weight)


class _MaskedBlocks:
    """Runs blocks of which the last are masked by what their tokens predict."""

    def __init__(self, model, annealing, images):
        self.annealing, self.images = annealing, images
        blocks = [one for one in model.layers if isinstance(one, TransformerBlock)]
        self.first = len(blocks) - annealing.num_blocks
        # Counted, as clones have no config.
        upscale_blocks = [one for one in model.layers if isinstance(one, UpscaleBlock)]
        self.scale = 2 ** len(upscale_blocks)
        inputs = [model.inputs[0], blocks[-1].output]
        self.predict = keras.Function(inputs, model.output)
        self.numbers = itertools.count(-self.first)
        self.predictions = []

    def block(self, encode, tokens):
        index = next(self.numbers)
        if index < 0:
            with running(watcher=None):
                return encode(tokens)
        with running(watcher=None):
            outputs = self.predict([self.images, tokens])
        self.predictions.append(outputs)
        sides = ops.shape(outputs["mask_logits"])[2:]
        grid = tuple(side // self.scale for side in sides)
        watcher = self.annealing.watcher(index, outputs["mask_logits"], grid)
        with running(watcher=watcher):
            return encode(tokens)
