"""keras-vit masked_patches --dataset=FOLDER, or any TFDS name without a recipe.

A small model and small images, for a laptop or one graphics card: no published number.
"""

from train.masked_patches.recipes import MaskingRecipe

RECIPE = MaskingRecipe(
    dataset="",
    model="ViT-Ti_16",
    weights=None,
    image_size=128,
    steps=5_000,
    batch_size=128,
    micro_batches=2,
    optimizer="adam",
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=500,
    weight_decay=0.1,
    dropout_rate=0.0,
    validation_fraction=0.05,
)
