"""The architectures; `zoo.network` has the table, one row a variant."""

import dataclasses
import math

import zoo
from keras_vit.layers.sizes import pair, positive_int
from zoo.semantics import COMPUTED, Semantics

_SIZES = ("hidden_size", "num_layers", "num_heads", "mlp_dim")
_POSITIONS = {
    "position_embedding": ("learned", "none", "2d", "relative"),
    "position_embedding_at": ("stem", "every_layer", "every_layer_shared"),
}


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
        activation: `"gelu_tanh"` or `"gelu"`. This and the next three are None for
            what the file of the weights says, or as released without a file.
        layer_norm_epsilon: float.
        resnet_padding: `"same"` or `"symmetric"`, of a hybrid's ResNet.
        resnet_epsilons: `"released"` or `"timm"`, of a hybrid's ResNet.
        position_embedding: `"learned"` for one embedding a token, as in all released
            models; `"2d"` for one a row and one a column, see `AddPositionEmbs2D`;
            `"relative"` for one an offset between two tokens in each block's
            attention, see `SelfAttention`; or `"none"`.
        position_embedding_at: where `"learned"` and `"2d"` ones are added: `"stem"`
            for before the dropout that comes before the first block, as released,
            `"every_layer"` for before each block, of its own, or
            `"every_layer_shared"` for the same before each block.

    Raises:
        ValueError: a number is not positive, or does not fit the others.

    Source:
        Paper table 1 and section 3.1; AugReg paper table 2. Position embeddings:
        paper appendix D.4. What sources compute differently: `zoo.semantics`.

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
    activation: str | None = None
    layer_norm_epsilon: float | None = None
    resnet_padding: str | None = None
    resnet_epsilons: str | None = None
    position_embedding: str = "learned"
    position_embedding_at: str = "stem"

    def __post_init__(self):
        Semantics(**self._said)
        patch_size = pair(self.patch_size, "patch_size")
        square = patch_size[0] == patch_size[1]
        object.__setattr__(self, "patch_size", patch_size[0] if square else patch_size)
        if self.resnet_stages is not None:
            stages = tuple(
                positive_int(units, "each of resnet_stages")
                for units in self.resnet_stages
            )
            object.__setattr__(self, "resnet_stages", stages)
        for name in (*_SIZES, "resnet_width"):
            object.__setattr__(self, name, positive_int(getattr(self, name), name))
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
        self._check_positions()

    def _check_positions(self):
        for name, values in _POSITIONS.items():
            if getattr(self, name) not in values:
                raise ValueError(
                    f"{name} must be one of {', '.join(values)}, got "
                    f"{getattr(self, name)!r}."
                )
        added = self.position_embedding in ("learned", "2d")
        if not added and self.position_embedding_at != "stem":
            raise ValueError(
                f"position_embedding={self.position_embedding!r} is not added to "
                "tokens: leave out "
                f"position_embedding_at={self.position_embedding_at!r}."
            )

    @property
    def has_released_positions(self):
        """Whether its position embeddings are those of released files."""
        return (self.position_embedding, self.position_embedding_at) == (
            "learned",
            "stem",
        )

    @property
    def _said(self):
        """Of what sources compute differently, that which is not None."""
        values = {name: getattr(self, name) for name in COMPUTED}
        return {name: value for name, value in values.items() if value is not None}

    def completed(self, semantics=None, source="the weights"):
        """Returns the architecture with nothing left to a file.

        Args:
            semantics: `zoo.semantics.Semantics` of the file, None without one.
            source: str, what the file is called in an error.

        Returns:
            `ViTConfig`.

        Raises:
            ValueError: the file computes something else than this asks for.

        Example:

        >>> VARIANTS["ViT-B_16"].completed().activation
        'gelu_tanh'
        """
        asked = Semantics() if semantics is None else semantics
        values = {name: getattr(asked, name) for name in COMPUTED}
        if semantics is not None:
            differences = {
                name: value
                for name, value in self._said.items()
                if value != values[name] and (self.is_hybrid or "resnet" not in name)
            }
            if differences:
                raise ValueError(
                    f"{source} computes other numbers than the ViTConfig asks for: "
                    + ", ".join(
                        f"{name} {values[name]!r} (the ViTConfig has {value!r})"
                        for name, value in differences.items()
                    )
                    + ". Leave these out of the ViTConfig for the file's, or pass "
                    "zoo.read(path, semantics=...) as the weights for others."
                )
        return dataclasses.replace(self, **{**values, **self._said})

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


VARIANTS = {
    name: ViTConfig(**dataclasses.asdict(sizes))
    for name, sizes in zoo.ARCHITECTURES.items()
}
