"""The released architectures: one row a variant."""

from __future__ import annotations

import dataclasses
import functools
import math

from zoo import released_names


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The sizes of a released Vision Transformer.

    Args:
        hidden_size: int, the size of a token.
        num_layers: int, the number of transformer blocks.
        num_heads: int, divides `hidden_size`.
        mlp_dim: int, the size of the perceptrons' hidden layer.
        patch_size: int, side of a patch: in pixels, in a hybrid in positions of the
            ResNet's feature map.
        resnet_stages: None, or a tuple of ints, the bottleneck units of each stage of a
            hybrid's ResNet; empty for the root convolution alone.
        resnet_width: int, channels of a hybrid's root convolution.

    Source:
        ViT paper table 1 and section 3.1; AugReg paper table 2.

    Example:
        >>> from zoo import architectures
        >>> architectures.ARCHITECTURES["ViT-B_16"].mlp_dim
        3072
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    patch_size: int
    resnet_stages: tuple[int, ...] | None = None
    resnet_width: int = 64

    @property
    def stride(self) -> int:
        """Pixels from one token's patch to the next."""
        if self.resnet_stages is None:
            return self.patch_size
        # The root's convolution and pooling halve twice, each later stage once.
        return 4 * 2 ** max(len(self.resnet_stages) - 1, 0) * self.patch_size

    def count_parameters(
        self,
        image_size: int,
        classes: int,
        representation_size: int | None = None,
        class_token: bool = True,
    ) -> int:
        """Counts the parameters of a model of this architecture.

        Args:
            image_size: int, side of the images, a multiple of `stride`.
            classes: int, outputs of the head.
            representation_size: int or None, width of `pre_logits`.
            class_token: bool, whether there is a class token.

        Returns:
            int.

        Example:
            >>> from zoo import architectures
            >>> row = architectures.ARCHITECTURES["ViT-B_16"]
            >>> row.count_parameters(image_size=224, classes=1000)
            86567656
        """
        return _count(self, image_size, classes, representation_size, class_token)


@functools.cache
def _count(architecture, image_size, classes, representation_size, class_token):
    sizes = {
        **dataclasses.asdict(architecture),
        "head_size": architecture.hidden_size // architecture.num_heads,
        "patch_height": architecture.patch_size,
        "patch_width": architecture.patch_size,
        "channels": 3,
        "positions": (image_size // architecture.stride) ** 2 + class_token,
        "classes": classes,
        "representation_size": representation_size,
    }
    names = _names(architecture, representation_size is not None, class_token)
    return sum(
        math.prod(_size(symbol, sizes) for symbol in shape)
        for shape in released_names.layout(names).values()
    )


def _names(architecture, pre_logits, class_token):
    """Yields released names enough to tell the whole layout by."""
    yield from released_names.HEAD_ARRAYS
    if pre_logits:
        yield from released_names.PRE_LOGITS_ARRAYS
    if class_token:
        yield released_names.CLASS_TOKEN
    for block in range(architecture.num_layers):
        yield f"{released_names.BLOCK}_{block}/"
    if architecture.resnet_stages is not None:
        yield from released_names.ROOT_ARRAYS
        for stage, units in enumerate(architecture.resnet_stages, start=1):
            for unit in range(1, units + 1):
                yield f"block{stage}/unit{unit}/"


def _size(symbol, sizes):
    """Returns the number that an entry of a released shape stands for."""
    factor, name = symbol if isinstance(symbol, tuple) else (1, symbol)
    return name if isinstance(name, int) else factor * sizes[name]


_TI = {"hidden_size": 192, "num_layers": 12, "num_heads": 3, "mlp_dim": 768}
_S = {"hidden_size": 384, "num_layers": 12, "num_heads": 6, "mlp_dim": 1536}
_B = {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "mlp_dim": 3072}
_L = {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "mlp_dim": 4096}
_H = {"hidden_size": 1280, "num_layers": 32, "num_heads": 16, "mlp_dim": 5120}

ARCHITECTURES = {
    "ViT-Ti_16": Architecture(**_TI, patch_size=16),
    "ViT-S_16": Architecture(**_S, patch_size=16),
    "ViT-S_32": Architecture(**_S, patch_size=32),
    "ViT-B_8": Architecture(**_B, patch_size=8),
    "ViT-B_16": Architecture(**_B, patch_size=16),
    "ViT-B_32": Architecture(**_B, patch_size=32),
    "ViT-L_16": Architecture(**_L, patch_size=16),
    "ViT-L_32": Architecture(**_L, patch_size=32),
    "ViT-H_14": Architecture(**_H, patch_size=14),
    # Its root convolution and pooling make it /32, whatever its name says.
    "R+ViT-Ti_16": Architecture(**_TI, patch_size=8, resnet_stages=()),
    "R26+ViT-S_32": Architecture(**_S, patch_size=1, resnet_stages=(2, 2, 2, 2)),
    "R26+ViT-B_32": Architecture(**_B, patch_size=1, resnet_stages=(2, 2, 2, 2)),
    "R50+ViT-B_16": Architecture(**_B, patch_size=1, resnet_stages=(3, 4, 9)),
    "R50+ViT-L_32": Architecture(**_L, patch_size=1, resnet_stages=(3, 4, 6, 3)),
}
