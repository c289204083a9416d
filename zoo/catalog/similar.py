"""What to say of names that there are not: what those of other libraries are here."""

import difflib
import re
from collections.abc import Iterable

from zoo.catalog import registry
from zoo.catalog.cards import CARDS, RELEASED_VARIANTS
from zoo.catalog.families import MODELS
from zoo.catalog.model_card import either

_SIZES = {
    **{"tiny": "ti", "small": "s", "base": "b"},
    **{"large": "l", "huge": "h", "giant": "g"},
}
_PATCHES = ("8", "14", "16", "32")


def no_handle(handle: str, near: list[str]) -> str:
    """Returns what to say of a handle that there is not, with those that are near."""
    return (
        f"No model is called {handle!r}.{_hint(near)} zoo.list_models() lists every "
        f"handle, those in {registry.VARIABLE} too."
    )


def no_release(variant: str, release: str, known: tuple[str, ...]) -> str:
    """Returns what to say of a release that is not among those known of a variant."""
    hint = _hint(similar_releases(release, known))
    return f"{variant} was not released as {release!r}.{hint} Choose {either(known)}."


def _hint(near):
    return f" Did you mean {either(near)}?" if near else ""


def similar_handles(handle: str) -> list[str]:
    """Returns the handles that a text may mean, the likeliest first.

    Names of timm are understood with and without the tag of the weights.

    Args:
        handle: str, such as ``"timm/vit_small_patch14_dinov2"``.

    Example:
        >>> similar_handles("timm/vit_small_patch14_dinov2")
        ['dinov2-s14/lvd142m']
    """
    name = handle.rpartition("/")[2]
    if near := [card.handle for card in MODELS.values() if name in card.timm_names]:
        return near
    slug = handle.partition("/")[0]
    if near := [name for name in CARDS if slug in CARDS[name].slugs]:
        return near
    if near := [name for name in CARDS if CARDS[name].release == handle]:
        return near[:3]
    if variants := similar_variants(handle, RELEASED_VARIANTS)[:1]:
        of_variant = [name for name in CARDS if CARDS[name].variant in variants]
        releases_of = {CARDS[name].release: name for name in reversed(of_variant)}
        same = similar_releases(handle, releases_of)
        return [releases_of[release] for release in same] or of_variant
    names = {name.lower(): name for name in (*CARDS, *MODELS, *registry.models())}
    near = difflib.get_close_matches(handle.lower(), names, n=3, cutoff=0.5)
    return [names[name] for name in near]


def similar_variants(name: str, known: Iterable[str]) -> list[str]:
    """Returns the variants that a name may mean, the likeliest first.

    Names of timm, transformers, keras-hub and vit-keras are understood by their size,
    patch and ResNet; others are compared letter by letter.

    Args:
        name: str, such as ``"vit_tiny_patch16_224"`` or ``"ViT-Tiny_16"``.
        known: the variants there are.

    Example:
        >>> similar_variants("google/vit-base-patch16-224", ["ViT-B_16", "ViT-B_32"])
        ['ViT-B_16']
    """
    variants = {variant.lower(): variant for variant in known}
    if (wanted := _key(name)) is not None:
        return [variant for variant in variants.values() if _key(variant) == wanted]
    near = difflib.get_close_matches(name.lower(), variants, n=3, cutoff=0.5)
    return [variants[variant] for variant in near]


def similar_releases(name: str, known: Iterable[str]) -> list[str]:
    """Returns the releases that a name of weights may mean, the likeliest first.

    Args:
        name: str, such as ``"augreg_in21k_ft_in1k"`` or ``"in21k"``.
        known: the releases there are.

    Example:
        >>> similar_releases("augreg_in21k", ["imagenet21k", "augreg-imagenet21k"])
        ['augreg-imagenet21k']
    """
    known = list(dict.fromkeys(known))
    wanted = _data_sets(name)
    same = [release for release in known if _data_sets(release) == wanted]
    if any(wanted) and same:
        return same
    return difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)


def _key(name):
    """Returns the depth of the ResNet, the size and the patch, None without one."""
    words = re.findall(r"[a-z]+|\d+", name.lower().replace("vit", " vit "))
    if "vit" not in words:
        return None
    resnet = None
    if "r" in words:
        following = words[words.index("r") + 1 :]
        resnet = following[0] if following and following[0].isdecimal() else ""
    words = [_SIZES.get(word, word) for word in words]
    size = next((word for word in words if word in _SIZES.values()), None)
    patch = next((word for word in words if word in _PATCHES), None)
    return None if size is None or patch is None else (resnet, size, patch)


def _data_sets(name):
    """Returns the method, and whether ImageNet-21k and ImageNet are named."""
    name = name.lower()
    method = next((one for one in ("augreg", "gsam", "sam") if one in name), "")
    is_fine_tuned = re.search(r"(?<!2)1k|2012|_ft_", name) is not None
    # These were trained on ImageNet alone.
    if method in ("gsam", "sam"):
        return method, False, False
    return method, re.search("2[12]k", name) is not None, is_fine_tuned
