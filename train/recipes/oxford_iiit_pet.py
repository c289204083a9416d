"""keras-vit finetune --dataset=oxford_iiit_pet: 94.43% (paper table 5)."""

import dataclasses

from train.recipes import oxford_flowers102

RECIPE = dataclasses.replace(
    oxford_flowers102.RECIPE,
    dataset="oxford_iiit_pet",
    published="94.43 (ViT-B/16, paper table 5)",
)
