"""keras-vit finetune --dataset=vtab/dtd: 72.72% on average (paper table 2).

That is the mean of the 19 tasks of VTAB-1k for ViT-L/16 from ImageNet-21k. Every task
has the same recipe (paper, section B.1.1): 1,000 images, 2,500 steps at 384 pixels. To
choose settings, --validation_fraction=0.2 learns from 800 and validates on 200.
"""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="",
    model="ViT-L_16",
    weights="imagenet21k",
    image_size=384,
    steps=2_500,
    learning_rate=0.01,
    learning_rates=(0.01,),
    warmup_steps=500,
    validation_fraction=0.0,
)
