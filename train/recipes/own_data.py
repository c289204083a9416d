"""keras-vit finetune --dataset=FOLDER, or any TFDS name without a recipe.

A small model at the usual size, for a laptop: no published number.
"""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="",
    model="ViT-Ti_16",
    weights="augreg-imagenet21k",
    image_size=224,
    steps=500,
    batch_size=64,
    micro_batches=1,
    learning_rate=0.01,
    warmup_steps=50,
    validation_fraction=0.1,
)
