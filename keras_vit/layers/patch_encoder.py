"""Images to patch embeddings."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor
from keras_vit.layers.initial_values import initializer
from zoo.network import pair
from zoo.network.preparation import check_bits, check_preparation


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEncoder(Layer):
    """Cuts images into patches and projects each to a token.

    A strided convolution without overlap, computed as the matrix product that it is.
    Patches are read row by row.

    Args:
        patch_size: int or (height, width) of a patch in pixels.
        hidden_size: int, the size of a token.
        preparation: how photos come to the size of a model that has no head to say
            it, see `zoo.photos.prepare`.
        bits: None, or how many bits the values of photos in files of 16 bits have, of
            such a model too, see `zoo.photos.decode`.

    Call arguments:
        images: float tensor (batch, height, width, channels); height and width are
            multiples of the patch's.

    Returns:
        Float tensor (batch, tokens, hidden_size).

    Raises:
        ValueError: the image's sides are not multiples of the patch's.

    Source:
        Paper section 3.1, equation 1; `embedding` in the released files.

    Example:
        >>> images = keras.random.uniform((2, 32, 48, 3), -1.0, 1.0)
        >>> tuple(PatchEncoder(patch_size=16, hidden_size=192)(images).shape)
        (2, 6, 192)
    """

    def __init__(
        self,
        patch_size: int | tuple[int, int],
        hidden_size: int,
        preparation: str = "squash",
        bits: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.preparation = check_preparation(preparation)
        self.bits = check_bits(bits)
        self.patch_size = pair(patch_size, "patch_size")
        self.hidden_size = hidden_size

    def build(self, images_shape: Shape) -> None:
        if len(images_shape) != 4:
            raise ValueError(
                f"{self.name} takes images (batch, height, width, channels), got shape "
                f"{tuple(images_shape)}: give the channels last, and a batch."
            )
        self._kernel = self.add_weight(
            name="kernel",
            shape=(*self.patch_size, images_shape[-1], self.hidden_size),
            initializer=initializer("lecun_normal"),
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.hidden_size,), initializer="zeros"
        )

    def get_config(self) -> dict:
        config = super().get_config()
        for name, default in (("preparation", "squash"), ("bits", None)):
            if config[name] == default:  # older versions read that
                del config[name]
        return config

    @property
    def kernel(self) -> Tensor:
        return self._kernel

    def call(self, images: Tensor) -> Tensor:
        self._check_sides(images.shape)
        batch, height, width, channels = ops.shape(images)
        patch_height, patch_width = self.patch_size
        rows, columns = height // patch_height, width // patch_width
        patches = ops.reshape(
            images, (batch, rows, patch_height, columns, patch_width, channels)
        )
        patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
        patches = ops.reshape(patches, (-1, patch_height * patch_width * channels))
        kernel = ops.reshape(self.kernel, (-1, self.hidden_size))
        tokens = ops.matmul(patches, kernel) + self.bias
        return ops.reshape(tokens, (batch, rows * columns, self.hidden_size))

    def _check_sides(self, images_shape):
        _, height, width, _ = images_shape
        for side, patch_side in zip((height, width), self.patch_size, strict=True):
            if side is not None and side % patch_side:
                raise ValueError(
                    f"{self.name} expects images whose sides are multiples of the "
                    f"patch size {self.patch_size[0]}x{self.patch_size[1]}, got "
                    f"{height}x{width}: resize the images."
                )

    def compute_output_shape(self, images_shape: Shape) -> tuple:
        self._check_sides(images_shape)
        batch, height, width, _ = images_shape
        if height is None or width is None:
            return (batch, None, self.hidden_size)
        tokens = (height // self.patch_size[0]) * (width // self.patch_size[1])
        return (batch, tokens, self.hidden_size)
