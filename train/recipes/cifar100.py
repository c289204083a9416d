"""keras-vit finetune --dataset=cifar100 reaches 91.67% (paper table 5)."""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="cifar100",
    model="ViT-B_16",
    weights="imagenet21k",
    image_size=384,
    steps=10_000,
    learning_rate=0.03,
    validation_fraction=0.02,
    published="91.67 (ViT-B/16, paper table 5); 92.06 (released code)",
)
