"""keras-vit pretrain --dataset=imagenet21k reaches 83.97% (paper table 5).

That is what ViT-B/16 reaches on ImageNet after fine-tuning; the recipe is the row of
ImageNet-21k in the paper's table 3 for ViT-B: 90 epochs of 14,197,122 images, and no
clip. ViT-L has 30 or 90 epochs at the same rates. TFDS has no data set imagenet21k:
prepare one of that name, or pass --recipe=imagenet21k with your --dataset.
"""

import dataclasses

from train.recipes.pretraining import imagenet2012

RECIPE = dataclasses.replace(
    imagenet2012.RECIPE,
    dataset="imagenet21k",
    steps=311_900,
    learning_rate=1e-3,
    schedule="linear",
    weight_decay=0.03,
    clip_norm=None,
    validation_fraction=0.001,
    published="83.97 on ImageNet after fine-tuning (ViT-B/16, paper table 5)",
)
