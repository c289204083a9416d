"""keras-vit finetune --dataset=cifar100 --recipe=augreg_transfer: 93.2%.

How to train your ViT? (arXiv 2106.10270), table 4, for CIFAR-100, Resisc45, Pets and
Kitti (vtab-full/kitti_distance): 2,500 steps, or 500 and on CIFAR-100 and Resisc45
also 10,000, with the best of three learning rates (`--study=learning_rates`). The
figure is that of ViT-B/16 in table 5 there, which has 94.7% on Pets.
"""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="",
    model="ViT-B_16",
    weights="augreg-imagenet21k",
    image_size=384,
    steps=2_500,
    learning_rate=0.003,
    learning_rates=(0.001, 0.003, 0.01),
    warmup_steps=200,
    dropout_rate=0.0,
    validation_fraction=0.1,
)
