"""keras-vit pretrain --dataset=FOLDER, or any TFDS name without a recipe.

A small model for one graphics card, with the light augmentation of How to train your
ViT?: no published number.
"""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="",
    model="ViT-Ti_16",
    weights=None,
    image_size=224,
    steps=10_000,
    batch_size=256,
    micro_batches=4,
    optimizer="adam",
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=1_000,
    weight_decay=0.1,
    dropout_rate=0.0,
    validation_fraction=0.05,
    rand_augment=(2, 10.0),
    mixup=0.2,
)
