"""What arrays show of a network, and the one comparison with what settings state."""

import dataclasses
import functools
from typing import Any

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError
from zoo.network import FAMILIES, ViTConfig, released_names

# The remedy where settings are of another model than the arrays.
APART = "keep each model in a folder of its own, beside its own settings."
ANOTHER = "another model than the file beside it"
# The kinds of biases of offsets, by whether blocks have their own and share a table.
BIASES = {
    (False, False): "none",
    (True, False): "those of each block",
    (False, True): "one table for all blocks",
    (True, True): "those of each block and one table for all",
}


@dataclasses.dataclass(frozen=True)
class Shown:
    """What the arrays of a file show of their network.

    Args:
        shapes: {released name: shape}.
        sizes: {name: int}, as `released_names.measure` finds them.
        keys: the names of the arrays in the file.
        stem: the file's name without its ending.
        biases: a value of `BIASES`.
        flat_patches: whether the kernel multiplies patches that are vectors.
    """

    shapes: dict[str, tuple[int, ...]]
    sizes: dict[str, int]
    keys: tuple[str, ...] = ()
    stem: str = ""
    biases: str = BIASES[False, False]
    flat_patches: bool = False

    @functools.cached_property
    def families(self) -> dict[str, Any]:
        """{field of `ViTConfig`: value} of what arrays show of a family."""
        return released_names.families(self.shapes)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """{name of what settings may state: what it is by the arrays}."""
        features = released_names.features(self.shapes)
        no_norm = not (released_names.ENCODER_NORM.keys() & self.shapes.keys())
        return {
            "num_layers": released_names.count_blocks(self.shapes),
            **self.sizes,
            **self.families,
            "final_norm": "norm_after_pooling" in features or not no_norm,
            "class_token": "class_token" in features,
            "gates": released_names.SWIGLU in features,
            "head": "head" in features,
            "second_head": "distillation_head" in features,
            "attention_pooling": "attention_pooling" in features,
            "flat_patches": self.flat_patches,
            "relative position biases": self.biases,
        }

    @property
    def classes(self) -> int | None:
        """The outputs of the head, None without one."""
        return self.sizes.get("classes")

    @functools.cached_property
    def patches(self) -> ViTConfig:
        """How images are cut into patches."""
        size = self.sizes["patch_height"], self.sizes["patch_width"]
        stages = released_names.count_units(self.shapes)
        return ViTConfig(patch_size=size, resnet_stages=stages)

    def check(self, file: object, network: str, stated: dict) -> None:
        """Refuses settings of a network that state another fact than arrays show."""
        check(file, network, stated, self.facts)

    def check_sizes(self, file: object, settings: dict, sizes: dict[str, str]) -> None:
        """Refuses settings of other sizes; `sizes` is {their field: fact}."""
        shown = {field: self.facts[fact] for field, fact in sizes.items()}
        check(file, ANOTHER, {field: settings.get(field) for field in sizes}, shown)

    def check_plain(self, folder: object, library: str) -> None:
        """Refuses arrays of another family where no settings name the network."""
        plain = {name: FAMILIES[name] for name in self.families}
        stated = {**plain, "attention_pooling": False}
        if contrary := differences(stated, self.facts):
            raise CheckpointError(
                f"{folder} has no settings of {library} that name its network, and a "
                f"plain ViT has {', '.join(contrary)}: which activation, epsilon and "
                "pooling does it compute? Keep its config.json beside it."
            )


def differences(stated: dict, shown: dict) -> list[str]:
    """Returns what is stated and is not so, in words; None states nothing."""
    return [
        f"{name} {brief(value)} (the arrays have {brief(shown[name])})"
        for name, value in stated.items()
        if value is not None and value != shown[name]
    ]


def check(file: object, network: str, stated: dict, shown: dict) -> None:
    """Refuses settings that describe another network than is shown; see `Shown`."""
    if wrong := differences(stated, shown):
        raise CheckpointError(
            f"{file} describes {network}, with {', '.join(wrong)}: {APART}"
        )
