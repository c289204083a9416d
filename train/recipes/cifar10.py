"""keras-vit finetune --dataset=cifar10 reaches 98.95% (paper table 5)."""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="cifar10",
    model="ViT-B_16",
    weights="imagenet21k",
    image_size=384,
    steps=10_000,
    learning_rate=0.01,
    validation_fraction=0.02,
    published="98.95 (ViT-B/16, paper table 5); 99.02 (released code)",
)
