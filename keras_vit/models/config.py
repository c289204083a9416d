"""The architectures: one row a variant."""

import dataclasses
import math

from keras_vit.sizes import pair


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """The architecture of a Vision Transformer.

    Args:
        hidden_size: int, the size of a token.
        num_layers: int, the number of transformer blocks.
        num_heads: int, divides `hidden_size`.
        mlp_dim: int, the size of the perceptrons' hidden layer.
        patch_size: int or (height, width) of a patch: in pixels, in a hybrid in
            positions of the ResNet's feature map.
        resnet_stages: None, or a sequence of ints, the bottleneck units of each
            stage of a hybrid's ResNet; empty for the root convolution alone.
        resnet_width: int, channels of a hybrid's root convolution, a multiple of 32.

    Raises:
        ValueError: a number is not positive, or does not fit the others.

    Source:
        Paper table 1 and section 3.1; AugReg paper table 2.

    Example:

    >>> config = ViTConfig(hidden_size=128, num_layers=4, num_heads=4, mlp_dim=256,
    ...                    patch_size=8)
    >>> config.grid_size((32, 48))
    (4, 6)
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    patch_size: int | tuple[int, int]
    resnet_stages: tuple[int, ...] | None = None
    resnet_width: int = 64

    def __post_init__(self):
        patch_size = pair(self.patch_size, "patch_size")
        square = patch_size[0] == patch_size[1]
        object.__setattr__(self, "patch_size", patch_size[0] if square else patch_size)
        if self.resnet_stages is not None:
            object.__setattr__(self, "resnet_stages", tuple(self.resnet_stages))
        for name in ("hidden_size", "num_layers", "num_heads", "mlp_dim"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive int, got {value!r}.")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of "
                f"num_heads={self.num_heads}."
            )
        if self.is_hybrid and self.resnet_width % 32:
            raise ValueError(
                f"resnet_width={self.resnet_width} must be a multiple of 32, the "
                "groups of the ResNet's group norms."
            )

    @property
    def is_hybrid(self):
        """Whether a ResNet reads the image before the transformer does."""
        return self.resnet_stages is not None

    @property
    def stride(self):
        """Pixels from one token's patch to the next, (vertical, horizontal)."""
        stem = 1
        if self.is_hybrid:
            stem = 4 * 2 ** max(len(self.resnet_stages) - 1, 0)
        patch_height, patch_width = pair(self.patch_size, "patch_size")
        return (stem * patch_height, stem * patch_width)

    def grid_size(self, image_size, name="This model"):
        """Returns the (rows, columns) of patches of an image.

        Args:
            image_size: int or (height, width) in pixels.
            name: str, what the model is called in an error.

        Returns:
            Tuple (rows, columns).

        Raises:
            ValueError: the image cannot be cut into whole patches.

        Example:

        >>> VARIANTS["ViT-B_16"].grid_size(224)
        (14, 14)
        """
        height, width = pair(image_size, "image_size")
        sides = (height, width)
        if self.is_hybrid:
            # SAME padding: every halving of the ResNet rounds up.
            halvings = 2 + max(len(self.resnet_stages) - 1, 0)
            sides = tuple(math.ceil(side / 2**halvings) for side in sides)
        patch = pair(self.patch_size, "patch_size")
        if any(side % step for side, step in zip(sides, patch, strict=True)):
            nearest = tuple(
                max(round(side / step), 1) * step
                for side, step in zip((height, width), self.stride, strict=True)
            )
            step = self.stride[0] if self.stride[0] == self.stride[1] else self.stride
            raise ValueError(
                f"{name} expects images whose sides are multiples of the patch size "
                f"{step}, got {height}x{width}: resize the images, or pass "
                f"image_size={nearest}."
            )
        return tuple(side // step for side, step in zip(sides, patch, strict=True))


_TI = {"hidden_size": 192, "num_layers": 12, "num_heads": 3, "mlp_dim": 768}
_S = {"hidden_size": 384, "num_layers": 12, "num_heads": 6, "mlp_dim": 1536}
_B = {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "mlp_dim": 3072}
_L = {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "mlp_dim": 4096}
_H = {"hidden_size": 1280, "num_layers": 32, "num_heads": 16, "mlp_dim": 5120}

VARIANTS = {
    "ViT-Ti_16": ViTConfig(**_TI, patch_size=16),
    "ViT-S_16": ViTConfig(**_S, patch_size=16),
    "ViT-S_32": ViTConfig(**_S, patch_size=32),
    "ViT-B_8": ViTConfig(**_B, patch_size=8),
    "ViT-B_16": ViTConfig(**_B, patch_size=16),
    "ViT-B_32": ViTConfig(**_B, patch_size=32),
    "ViT-L_16": ViTConfig(**_L, patch_size=16),
    "ViT-L_32": ViTConfig(**_L, patch_size=32),
    "ViT-H_14": ViTConfig(**_H, patch_size=14),
    # Its root convolution and pooling make it /32, whatever its name says.
    "R+ViT-Ti_16": ViTConfig(**_TI, patch_size=8, resnet_stages=()),
    "R26+ViT-S_32": ViTConfig(**_S, patch_size=1, resnet_stages=(2, 2, 2, 2)),
    "R26+ViT-B_32": ViTConfig(**_B, patch_size=1, resnet_stages=(2, 2, 2, 2)),
    "R50+ViT-B_16": ViTConfig(**_B, patch_size=1, resnet_stages=(3, 4, 9)),
    "R50+ViT-L_32": ViTConfig(**_L, patch_size=1, resnet_stages=(3, 4, 6, 3)),
}
