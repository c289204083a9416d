"""keras-vit finetune --dataset=oxford_iiit_pet: 94.43% (paper table 5)."""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="oxford_iiit_pet",
    model="ViT-B_16",
    weights="imagenet21k",
    image_size=384,
    steps=500,
    learning_rate=0.003,
    warmup_steps=100,
    validation_fraction=0.1,
    published="94.43 (ViT-B/16, paper table 5)",
)
