"""Names of other libraries, and misspelt ones."""

import zoo
from zoo.catalog.similar import similar_releases, similar_variants

VARIANTS = {
    "ViT-Tiny_16": "ViT-Ti_16",
    "ViT_Ti16": "ViT-Ti_16",
    "vit_base_patch8_224.augreg_in21k": "ViT-B_8",
    "google/vit-large-patch32-384": "ViT-L_32",
    "google/vit-huge-patch14-224-in21k": "ViT-H_14",
    "VIT B/32": "ViT-B_32",
    "vit_small_r26_s32_224": "R26+ViT-S_32",
    "vit_tiny_r_s16_p8_224": "R+ViT-Ti_16",
    "R50_ViT_L32": "R50+ViT-L_32",
    "vitb16": "ViT-B_16",
}
RELEASES = {
    "in21k": "imagenet21k",
    "imagenet-21k": "imagenet21k",
    "orig_in21k_ft_in1k": "imagenet21k+imagenet2012",
    "augreg_in21k": "augreg-imagenet21k",
    "augreg_in21k_ft_in1k": "augreg-imagenet21k+imagenet2012",
    "sam_in1k": "sam",
    "imagnet21k": "imagenet21k",
}


def test_names_of_variants_and_releases():
    for name, variant in VARIANTS.items():
        assert similar_variants(name, zoo.VARIANTS)[0] == variant, name
    for variant in zoo.VARIANTS:
        assert similar_variants(variant, zoo.VARIANTS) == [variant]
    for other in ("efficientnet", "ViT-G_14", "vit_small_patch8_224"):
        assert similar_variants(other, zoo.VARIANTS) == []
    for name, release in RELEASES.items():
        assert similar_releases(name, zoo.releases("ViT-B_16"))[0] == release, name
