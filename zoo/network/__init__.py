"""The description of a Vision Transformer, and the released variants as a table."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from zoo.common import limits
from zoo.common.safe_text import brief
from zoo.network import position_embedding, released_names

SIZES = (
    "hidden_size", "num_layers", "num_heads", "mlp_dim",
    "patch_size", "resnet_stages", "resnet_width",
)  # fmt: skip
# Choices that differ between sources, with the values of the released code.
RELEASED: dict[str, Any] = {
    "activation": "gelu_tanh",
    "layer_norm_epsilon": 1e-6,
    "input_mean": (0.5, 0.5, 0.5),
    "input_std": (0.5, 0.5, 0.5),
    "resnet_padding": "same",
    "resnet_epsilons": "released",
}
# Further choices of other families, with the values of the released models.
FAMILIES: dict[str, Any] = {
    "layer_scale": False,
    "num_registers": 0,
    "distillation_token": False,
    "qkv_bias": True,
    "norm_before_blocks": False,
    "final_norm": True,
    "norm_after_pooling": False,
    "attention_norm_inside": False,
    "mlp_norm_inside": False,
    "norm_after_branches": False,
    "rotary": "none",
    "rotary_grid": None,
    "rotary_base": None,
    "tokens_with_positions": "all",
    "position_resizing": "released",
    "relative_position_bias": False,
    "relative_position_resizing": position_embedding.GEOMETRIC,
    "num_queries": 0,
    "query_blocks": 0,
    "upscale_blocks": 0,
}
# The fields of a network that segments images.
OF_QUERIES = ("num_queries", "query_blocks", "upscale_blocks")
# The kinds of rotary positions, with the base of their frequencies.
ROTARY_BASES = {
    **{"dinov3": 100.0, "axial": 100.0},
    **{"eva": 10_000.0, "perception": 10_000.0},
}
# Choices of what happens at another image size, with which all weights go.
RESIZING = ("position_resizing", "relative_position_resizing")
# A head reads the class token, the mean of the patches, both after one another, the
# result of an attention pooling, the mean of the class token and a distillation token,
# or queries, of which it makes masks.
POOLINGS = ("token", "gap", "token_and_gap", "map", "distilled", "queries")
# `layer_scale` may be a float, too.
_FLAGS = [name for name, value in FAMILIES.items() if isinstance(value, bool)]
CHOICES = {
    **{name: (True, False) for name in _FLAGS if name != "layer_scale"},
    "activation": ("gelu_tanh", "gelu", "quick_gelu", "swiglu"),
    "resnet_padding": ("same", "symmetric"),
    "resnet_epsilons": ("released", "timm"),
    "position_embedding": ("learned", "none", "2d", "relative"),
    "position_embedding_at": ("stem", "every_layer", "every_layer_shared"),
    "qkv_bias": (True, False, "query and value"),
    "rotary": ("none", *ROTARY_BASES),
    "tokens_with_positions": ("all", "patches", "class token and patches", "none"),
    "position_resizing": position_embedding.METHODS,
    "relative_position_resizing": position_embedding.RELATIVE_METHODS,
}


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """What a Vision Transformer is, what it computes, and what images it expects.

    None means "as the file of the weights says": a config without sizes describes
    whatever network the file holds. Without a file the sizes must be given, and the
    rest is as released.

    Args:
        hidden_size: int, the size of a token.
        num_layers: int, the number of transformer blocks.
        num_heads: int, divides `hidden_size`.
        mlp_dim: int, the size of the hidden layer of each block's MLP.
        patch_size: int or (height, width) of a patch: in pixels, in a hybrid in
            positions of the ResNet's feature map.
        resnet_stages: the bottleneck units of each stage of a hybrid's ResNet; empty
            for the root convolution alone. A file has it together with `patch_size`.
        resnet_width: channels of a hybrid's root convolution, a multiple of 32.
        activation: `"gelu_tanh"` as released, `"gelu"`, the exact one, `"quick_gelu"`
            or `"swiglu"`, see `MLP`.
        layer_norm_epsilon: float added to the variance, 1e-6 as released.
        resnet_padding: of a hybrid's convolutions and pooling: `"same"` as released,
            which adds odd padding at the bottom and right, or `"symmetric"`.
        resnet_epsilons: of a hybrid's ResNet: `"released"` for 1e-6 in the group
            norms and 1e-5 added to the deviation of a kernel, or `"timm"` for 1e-5
            and 1e-8 added to the variance of a kernel.
        position_embedding: `"learned"` for one embedding per token, as in all released
            models; `"2d"` for one per row and one per column, see `AddPositionEmbs2D`;
            `"relative"` for one per offset between two tokens in each block's
            attention, see `SelfAttention`; or `"none"`.
        position_embedding_at: where `"learned"` and `"2d"` ones are added: `"stem"`
            for before the first dropout, as released, `"every_layer"` for before each
            block, of its own, or `"every_layer_shared"` for the same before each block.
        input_mean: floats, one per channel of images in [0, 1]; 0.5 as released.
        input_std: floats, one per channel: the arrays of a file take
            (image - mean) / std. Models of `keras_vit` take images in [-1, 1] whatever
            these are: the difference is folded into their patch embedding.
        layer_scale: whether each branch of a block is multiplied by learned factors,
            or the float that they start with; see `LayerScale`. This and the following
            are of other families; the released models have the last value named.
        num_registers: int, tokens that belong to no patch, see `RegisterTokens`; 0.
        distillation_token: bool, whether such a token follows the class token and has
            a head of its own, as in a distilled DeiT; False.
        qkv_bias: `False` for queries, keys and values without biases,
            `"query and value"` for none of the keys, or `True`.
        norm_before_blocks: bool, whether tokens are normalised before the first block,
            as in CLIP; False.
        final_norm: bool, whether there is a norm after the blocks; True.
        norm_after_pooling: bool, whether the last norm comes after the pooling and not
            before it, as timm's `fc_norm` does; False.
        attention_norm_inside: bool, see `TransformerBlock`; False.
        mlp_norm_inside: bool, see `TransformerBlock`; False.
        norm_after_branches: bool, `norm_after` of `TransformerBlock`; False.
        rotary: the kind of rotary positions, see `SelfAttention`, or `"none"`.
        rotary_grid: None, or the (rows, columns) to which their coordinates are
            stretched, see `SelfAttention`.
        rotary_base: None for that of the kind (100 of `"dinov3"` and `"axial"`, else
            10,000), or the float whose powers the frequencies are, called theta or
            temperature elsewhere.
        tokens_with_positions: `"patches"` for learned positions of the patches alone,
            `"class token and patches"` for all but registers, `"none"` where there are
            rotary ones or relative biases alone, or `"all"`.
        position_resizing: how position embeddings come to another grid, a `method` of
            `zoo.resize`: `"released"`, or the rule of the library whose file it is.
        relative_position_bias: bool, whether each block adds a learned bias of the
            offset between two patches to their score, see `RelativePositionBias`;
            False.
        relative_position_resizing: how these biases come to another grid, a `method`
            of `zoo.network.position_embedding.resize_relative`: `"geometric"`, timm's
            rule, or `"bilinear_no_antialias"`, that of transformers.
        num_queries: int, learned tokens of which each becomes a mask and its class, as
            in EoMT; 0. They go with `pooling="queries"` of `VisionTransformer`.
        query_blocks: int, how many of the last blocks have the queries before their
            other tokens; 0.
        upscale_blocks: int, how many times the sides of the grid of patches are doubled
            for the masks; 0.

    Raises:
        ValueError: a value is not one of the choices, or does not fit the others.

    Source:
        ViT paper table 1, section 3.1 and appendix D.4; AugReg paper table 2; EoMT,
        arXiv 2503.19108, section 3.2;
        `models_vit.py` and `models_resnet.py` of the released code, `ViTConfig` of
        transformers, `vision_transformer.py` and `vision_transformer_hybrid.py` of
        timm.

    Example:
        >>> config = ViTConfig(hidden_size=128, num_layers=4, num_heads=4, mlp_dim=256,
        ...                    patch_size=8)
        >>> config.grid_size((32, 48))
        (4, 6)
    """

    hidden_size: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    mlp_dim: int | None = None
    patch_size: int | tuple[int, int] | None = None
    resnet_stages: tuple[int, ...] | None = None
    resnet_width: int = 64
    activation: str | None = None
    layer_norm_epsilon: float | None = None
    resnet_padding: str | None = None
    resnet_epsilons: str | None = None
    position_embedding: str = "learned"
    position_embedding_at: str = "stem"
    input_mean: tuple[float, ...] | None = None
    input_std: tuple[float, ...] | None = None
    layer_scale: bool | float | None = None
    num_registers: int | None = None
    distillation_token: bool | None = None
    qkv_bias: bool | str | None = None
    norm_before_blocks: bool | None = None
    final_norm: bool | None = None
    norm_after_pooling: bool | None = None
    attention_norm_inside: bool | None = None
    mlp_norm_inside: bool | None = None
    norm_after_branches: bool | None = None
    rotary: str | None = None
    rotary_grid: tuple[int, int] | None = None
    rotary_base: float | None = None
    tokens_with_positions: str | None = None
    position_resizing: str | None = None
    relative_position_bias: bool | None = None
    relative_position_resizing: str | None = None
    num_queries: int | None = None
    query_blocks: int | None = None
    upscale_blocks: int | None = None

    def __post_init__(self):
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            may_be_none = name in RELEASED or name in FAMILIES
            if value not in choices and not (may_be_none and value is None):
                raise ValueError(
                    f"{name} must be one of {', '.join(map(str, choices))}, got "
                    f"{brief(value)}."
                )
        self._check_sizes()
        for name in ("layer_norm_epsilon", "rotary_base"):
            if getattr(self, name) is not None:
                self._set_positive(name)
        if self.layer_scale not in (None, True, False):
            self._set_positive("layer_scale")
        if self.rotary_grid is not None:
            self._set("rotary_grid", pair(self.rotary_grid, "rotary_grid"))
        if self.rotary_base == ROTARY_BASES.get(self.rotary):
            self._set("rotary_base", None)
        for name in ("num_registers", *OF_QUERIES):
            if getattr(self, name) not in (None, 0):
                self._set(name, positive_int(getattr(self, name), name))
        self._check_queries()
        self._check_inputs()
        self._check_positions()
        if self.norm_after_pooling and self.final_norm is False:
            raise ValueError(
                "norm_after_pooling says where the final norm is, and final_norm=False "
                "that there is none: leave one of them out."
            )

    def _check_queries(self):
        if not self.num_queries:
            if self.query_blocks or self.upscale_blocks:
                raise ValueError(
                    "query_blocks and upscale_blocks go with num_queries: pass it as "
                    "well, or leave them out."
                )
            return
        if not self.query_blocks or self.query_blocks > (self.num_layers or math.inf):
            raise ValueError(
                f"num_queries={self.num_queries} needs query_blocks from 1 to the "
                f"number of layers, got {self.query_blocks}."
            )
        is_relative = (
            self.relative_position_bias or self.position_embedding == "relative"
        )
        if self.position_embedding_at != "stem" or is_relative:
            raise ValueError(
                "Queries have no position: pass positions that are added at the stem, "
                "or rotary ones, or leave num_queries out."
            )
        side = min(pair(self.patch_size or limits.SIZE, "patch_size"))
        if 2 ** min(self.upscale_blocks or 0, 32) > side:
            raise ValueError(
                f"upscale_blocks={self.upscale_blocks} would make masks larger than "
                f"the image, whose patches have {side} pixels: pass fewer."
            )

    def _check_positions(self):
        kind, place = self.position_embedding, self.position_embedding_at
        if kind not in ("learned", "2d") and place != "stem":
            raise ValueError(
                f"position_embedding={kind!r} is not added to tokens: leave out "
                f"position_embedding_at={place!r}."
            )
        of_attention = {
            'position_embedding="relative"': kind == "relative",
            "relative_position_bias=True": self.relative_position_bias,
            f"rotary={self.rotary!r}": self.rotary not in (None, "none"),
        }
        kinds = [name for name, has in of_attention.items() if has]
        if len(kinds) > 1:
            raise ValueError(
                f"{' and '.join(kinds)} are positions of attention, which has one "
                "kind: leave the others out."
            )

    def _check_sizes(self):
        if self.patch_size is not None:
            height, width = pair(self.patch_size, "patch_size")
            self._set("patch_size", height if height == width else (height, width))
        elif self.is_hybrid or self.resnet_width != 64:
            raise ValueError(
                "resnet_stages and resnet_width go with patch_size: pass it as well, "
                "or leave these to the file."
            )
        if self.is_hybrid:
            name, stages = "each of resnet_stages", self.resnet_stages
            self._set("resnet_stages", tuple(positive_int(n, name) for n in stages))
        for name in (*SIZES[:4], "resnet_width"):
            if getattr(self, name) is not None:
                self._set(name, positive_int(getattr(self, name), name))
        if self.hidden_size and self.num_heads and self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of "
                f"num_heads={self.num_heads}."
            )
        if self.is_hybrid and self.resnet_width % 32:
            raise ValueError(
                f"resnet_width={self.resnet_width} must be a multiple of 32, the "
                "groups of the ResNet's group norms."
            )

    def _check_inputs(self):
        mean, std = self.input_mean, self.input_std
        for name, values in (("input_mean", mean), ("input_std", std)):
            if values is None:
                continue
            if not isinstance(values, (tuple, list)) or not values:
                raise ValueError(
                    f"{name} must be one float per channel, got {brief(values)}."
                )
            is_std = name == "input_std"
            channels = (finite_float(value, name, positive=is_std) for value in values)
            self._set(name, tuple(channels))
        if mean is not None and std is not None and len(mean) != len(std):
            raise ValueError(
                f"input_mean has {len(mean)} channels and input_std has {len(std)}: "
                "give both one float per channel."
            )

    def _set(self, name, value):
        object.__setattr__(self, name, value)

    def _set_positive(self, name):
        self._set(name, finite_float(getattr(self, name), name, positive=True))

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes by name, those of a ResNet included."""
        return {name: getattr(self, name) for name in SIZES}

    @classmethod
    def released(cls, *, num_heads: int | None = None, **computed: Any) -> ViTConfig:
        """Returns a config without sizes that computes as the released files do.

        `ViTConfig(...)` leaves to the file what is not given.

        Args:
            num_heads: int, for files that do not hold it.
            **computed: by names in `RELEASED`, what is computed otherwise.

        Raises:
            ValueError: a value is None.
            TypeError: there is no such name.

        Example:
            >>> ViTConfig.released(activation="gelu").layer_norm_epsilon
            1e-06
        """
        if unknown := computed.keys() - RELEASED.keys():
            raise TypeError(
                f"ViTConfig.released() takes no {', '.join(sorted(unknown))}: pass "
                f"num_heads, {', '.join(RELEASED)}."
            )
        if nulls := [name for name, value in computed.items() if value is None]:
            raise ValueError(f"{', '.join(nulls)} must have a value, got None.")
        return cls(num_heads=num_heads, **RELEASED | computed)

    @property
    def computed(self) -> dict[str, Any]:
        """What sources differ in, by name; None where the file decides."""
        return {name: getattr(self, name) for name in RELEASED}

    @property
    def semantics(self) -> ViTConfig:
        """The same without sizes, as released where it leaves a choice to the file.

        What a family has besides stays None where it is left to the file.
        """
        computed = ViTConfig(**self.computed).with_defaults(ViTConfig(**RELEASED))
        families = {name: getattr(self, name) for name in FAMILIES}
        return dataclasses.replace(computed, **families)

    def without_queries(self) -> ViTConfig:
        """Returns the config of the encoder alone, which has no queries.

        Example:
            >>> ViTConfig(num_queries=100, query_blocks=4).without_queries().num_queries
            0
        """
        if not self.num_queries:
            return self
        none: dict[str, Any] = dict.fromkeys(OF_QUERIES, 0)
        return dataclasses.replace(self, **none)

    @property
    def takes_unit_range(self) -> bool:
        """Whether the arrays take images in [-1, 1], as the released ones do."""
        inputs = self.semantics
        return {*inputs.input_mean, *inputs.input_std} == {0.5}

    @property
    def has_released_positions(self) -> bool:
        """Whether its position embeddings are those of released files."""
        kind, place = self.position_embedding, self.position_embedding_at
        return kind == "learned" and place == "stem"

    @property
    def is_hybrid(self) -> bool:
        """Whether a ResNet reads the image before the transformer does."""
        return self.resnet_stages is not None

    @property
    def _stem_stride(self):
        # The root's convolution and pooling halve twice, each later stage once.
        return 4 * 2 ** max(len(self.resnet_stages) - 1, 0) if self.is_hybrid else 1

    @property
    def stride(self) -> tuple[int, int]:
        """Pixels from one token's patch to the next, (vertical, horizontal)."""
        height, width = pair(self.patch_size, "patch_size")
        return (self._stem_stride * height, self._stem_stride * width)

    def differences(self, other: ViTConfig) -> dict[str, tuple]:
        """Returns the fields that differ: {name: (this one's value, the other's)}."""
        pairs = {name: (vars(self)[name], vars(other)[name]) for name in vars(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def with_defaults(self, other: ViTConfig) -> ViTConfig:
        """Returns the config with what is None in it as in another one."""
        names = (*SIZES, *RELEASED, *FAMILIES)
        missing = [name for name in names if getattr(self, name) is None]
        # A patch size means a ResNet of its own, or none.
        resnet = {"resnet_stages", "resnet_width"}
        names = {*missing, *resnet} if self.patch_size is None else {*missing} - resnet
        return dataclasses.replace(self, **{name: vars(other)[name] for name in names})

    def completed(
        self, of_file: ViTConfig | None = None, source: str = "the weights"
    ) -> ViTConfig:
        """Returns the config with nothing left to a file.

        Args:
            of_file: what a file describes, None without one.
            source: what the file is called in an error.

        Raises:
            ValueError: the file computes something else, or a size is given neither
                here nor there.

        Example:
            >>> VARIANTS["ViT-B_16"].completed().activation
            'gelu_tanh'
        """
        known = ViTConfig(**RELEASED, **FAMILIES) if of_file is None else of_file
        completed_config = self.with_defaults(known)
        if missing := [
            name for name in SIZES[:5] if getattr(completed_config, name) is None
        ]:
            raise ValueError(
                f"The ViTConfig has no {', '.join(missing)}: pass all sizes, or the "
                "weights of a file that has them."
            )
        differences = [
            f"{name} {theirs!r} (the ViTConfig has {ours!r})"
            for name, (ours, theirs) in completed_config.differences(known).items()
            if (
                name in RELEASED
                and (completed_config.is_hybrid or "resnet" not in name)
            )
            # Factors are learned whatever they start with, and resizing is a choice.
            or (name == "layer_scale" and bool(ours) != bool(theirs))
            or (name in FAMILIES and name not in ("layer_scale", *RESIZING))
        ]
        if of_file is not None and differences:
            raise ValueError(
                f"{source} computes other numbers than the ViTConfig states: "
                f"{', '.join(differences)}. Leave these out of the ViTConfig for the "
                "file's, or pass zoo.read(path, semantics=...) as the weights for "
                "others."
            )
        return completed_config

    def grid_size(
        self, image_size: int | tuple[int, int], name: str = "This model"
    ) -> tuple[int, int]:
        """Returns the (rows, columns) of patches of an image.

        Args:
            image_size: int or (height, width) in pixels.
            name: what the model is called in an error.

        Raises:
            ValueError: the image cannot be cut into whole patches.

        Example:
            >>> VARIANTS["ViT-B_16"].grid_size(224)
            (14, 14)
        """
        height, width = pair(image_size, "image_size")
        # SAME padding: every halving of the ResNet rounds up.
        sides = [math.ceil(side / self._stem_stride) for side in (height, width)]
        patch = pair(self.patch_size, "patch_size")
        if any(side % step for side, step in zip(sides, patch, strict=True)):
            rows, columns = self.stride
            steps = ((height, rows), (width, columns))
            nearest = tuple(max(round(side / n), 1) * n for side, n in steps)
            raise ValueError(
                f"{name} expects images whose sides are multiples of the patch size "
                f"{rows if rows == columns else self.stride}, got {height}x{width}: "
                f"resize the images, or pass image_size={nearest}."
            )
        return tuple(side // step for side, step in zip(sides, patch, strict=True))

    def count_parameters(
        self,
        image_size: int | tuple[int, int],
        classes: int,
        representation_size: int | None = None,
        class_token: bool = True,
    ) -> int:
        """Counts the parameters of a model with released position embeddings.

        Args:
            image_size: int or (height, width) in pixels.
            classes: outputs of the head.
            representation_size: width of `pre_logits`, if it has them.
            class_token: whether there is a class token.

        Example:
            >>> VARIANTS["ViT-B_16"].count_parameters(224, classes=1000)
            86567656
        """
        return released_names.count(
            self.with_defaults(ViTConfig(**RELEASED, **FAMILIES)),
            self.grid_size(image_size),
            classes,
            representation_size,
            class_token,
        )


def positive_int(value: Any, name: str, hint: str = "") -> int:
    """Returns `value` as a positive int; `name` and `hint` begin and end the error."""
    try:
        number = 0 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a positive int, got {brief(value)}{hint}.")
    if number > limits.SIZE:
        most = f"{limits.SIZE:,}, the most that arrays are made for"
        raise ValueError(f"{name} must be at most {most}, got {brief(value)}{hint}.")
    return number


def pair(size: Any, name: str) -> tuple[int, int]:
    """Returns an int or a pair as (height, width); `name` begins the error."""
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    with contextlib.suppress(ValueError):
        if len(sides) == 2:
            height, width = (positive_int(side, name) for side in sides)
            return height, width
    raise ValueError(
        f"{name} must be a positive int or a (height, width) pair of them, up to "
        f"{limits.SIZE:,}, got {brief(size)}."
    )


def nearest_size(sides: Iterable[float], steps: Sequence[int]) -> tuple[int, ...]:
    """Returns the sides of images that are multiples of steps, nearest to others.

    Example:
        >>> nearest_size((288, 20), (16, 16))
        (288, 16)
    """
    return tuple(
        max(round(side / step), 1) * step
        for side, step in zip(sides, steps, strict=True)
    )


def rate(value: Any, name: str) -> float:
    """Returns `value` as the rate of a dropout, in [0, 1); `name` begins the error."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {brief(value)}.")
    return float(value)


def finite_float(value: Any, name: str, *, positive: bool = False) -> float:
    """Returns `value` as a number that float32 can hold; `name` begins the error."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # Not a number compares as false.
    is_finite = is_number and abs(value) <= limits.FLOAT
    if not is_finite or (positive and value <= 0):
        kind = "a positive number" if positive else "a number"
        raise ValueError(
            f"{name} must be {kind} of at most {limits.FLOAT:g}, got {brief(value)}."
        )
    return float(value)


_SIZES: dict[str, dict[str, Any]] = {
    "Ti": {"hidden_size": 192, "num_layers": 12, "num_heads": 3, "mlp_dim": 768},
    "S": {"hidden_size": 384, "num_layers": 12, "num_heads": 6, "mlp_dim": 1536},
    "B": {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "mlp_dim": 3072},
    "L": {"hidden_size": 1024, "num_layers": 24, "num_heads": 16, "mlp_dim": 4096},
    "H": {"hidden_size": 1280, "num_layers": 32, "num_heads": 16, "mlp_dim": 5120},
}

VARIANTS = {
    "ViT-Ti_16": ViTConfig(**_SIZES["Ti"], patch_size=16),
    "ViT-S_16": ViTConfig(**_SIZES["S"], patch_size=16),
    "ViT-S_32": ViTConfig(**_SIZES["S"], patch_size=32),
    "ViT-B_8": ViTConfig(**_SIZES["B"], patch_size=8),
    "ViT-B_16": ViTConfig(**_SIZES["B"], patch_size=16),
    "ViT-B_32": ViTConfig(**_SIZES["B"], patch_size=32),
    "ViT-L_16": ViTConfig(**_SIZES["L"], patch_size=16),
    "ViT-L_32": ViTConfig(**_SIZES["L"], patch_size=32),
    "ViT-H_14": ViTConfig(**_SIZES["H"], patch_size=14),
    # Its root convolution and pooling make it /32, whatever its name says.
    "R+ViT-Ti_16": ViTConfig(**_SIZES["Ti"], patch_size=8, resnet_stages=()),
    "R26+ViT-S_32": ViTConfig(**_SIZES["S"], patch_size=1, resnet_stages=(2, 2, 2, 2)),
    "R26+ViT-B_32": ViTConfig(**_SIZES["B"], patch_size=1, resnet_stages=(2, 2, 2, 2)),
    "R50+ViT-B_16": ViTConfig(**_SIZES["B"], patch_size=1, resnet_stages=(3, 4, 9)),
    "R50+ViT-L_32": ViTConfig(**_SIZES["L"], patch_size=1, resnet_stages=(3, 4, 6, 3)),
}


@dataclasses.dataclass(frozen=True)
class BiTConfig:
    """The network of a BiT ResNet.

    Args:
        depths: ints, the bottleneck units of each stage.
        width_factor: int, how many times wider it is than a ResNet.

    Source:
        Big Transfer, arXiv 1912.11370, section 3.1.

    Example:
        >>> BIT_VARIANTS["BiT-R50x1"].depths
        (3, 4, 6, 3)
    """

    depths: tuple[int, ...]
    width_factor: int = 1

    def __post_init__(self):
        depths = tuple(positive_int(units, "depths") for units in self.depths)
        object.__setattr__(self, "depths", depths)
        positive_int(self.width_factor, "width_factor")


BIT_VARIANTS = {
    "BiT-R50x1": BiTConfig((3, 4, 6, 3)),
    "BiT-R50x3": BiTConfig((3, 4, 6, 3), width_factor=3),
    "BiT-R101x1": BiTConfig((3, 4, 23, 3)),
    "BiT-R101x3": BiTConfig((3, 4, 23, 3), width_factor=3),
    "BiT-R152x2": BiTConfig((3, 8, 36, 3), width_factor=2),
    "BiT-R152x4": BiTConfig((3, 8, 36, 3), width_factor=4),
}


@dataclasses.dataclass(frozen=True)
class ResNetV2Config:
    """The network of `keras.applications.ResNet50V2`, which Keras has."""


# The networks that runs build by their names, those of `VARIANTS` first.
NETWORKS: collections.ChainMap[str, Any] = collections.ChainMap(
    {"ResNet50V2": ResNetV2Config()}, BIT_VARIANTS, VARIANTS
)
