"""What a name of another library, or a misspelt one, is called here."""

import difflib
import re

_SIZES = {
    **{"tiny": "ti", "small": "s", "base": "b"},
    **{"large": "l", "huge": "h", "giant": "g"},
}
_PATCHES = ("8", "14", "16", "32")


def similar_variants(name: str, known) -> list[str]:
    """Returns the variants that a name may mean, the likeliest first.

    Names of timm, transformers, keras-hub and vit-keras are understood by their size,
    patch and ResNet; others are compared letter by letter.

    Args:
        name: str, such as ``"vit_tiny_patch16_224"`` or ``"ViT-Tiny_16"``.
        known: iterable of str, the variants there are.

    Example:
        >>> similar_variants("google/vit-base-patch16-224", ["ViT-B_16", "ViT-B_32"])
        ['ViT-B_16']
    """
    variants = {variant.lower(): variant for variant in known}
    if (wanted := _key(name)) is not None:
        return [variant for variant in variants.values() if _key(variant) == wanted]
    near = difflib.get_close_matches(name.lower(), variants, n=3, cutoff=0.5)
    return [variants[variant] for variant in near]


def similar_releases(name: str, known) -> list[str]:
    """Returns the releases that a name of weights may mean, the likeliest first.

    Args:
        name: str, such as ``"augreg_in21k_ft_in1k"`` or ``"in21k"``.
        known: iterable of str, the releases there are.

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
