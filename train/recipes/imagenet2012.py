"""keras-vit finetune --dataset=imagenet2012 reaches 83.97% (paper table 5)."""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="imagenet2012",
    model="ViT-B_16",
    weights="imagenet21k",
    image_size=384,
    steps=20_000,
    learning_rate=0.03,
    learning_rates=(0.003, 0.01, 0.03, 0.06),
    validation_fraction=0.01,
    published="83.97 (ViT-B/16, paper table 5); 84.53 (released code)",
)
