"""keras-vit masked_patches --dataset=imagenet2012.

The recipe of the paper's appendix B.1.2 for 100,000 steps, after which it saw
diminishing returns, on ImageNet, where it saw "similar gains": no number was published
(79.9% is that of a million steps on JFT). The clip is that of ImageNet in the paper's
table 3.
"""

import dataclasses

from train.masked_patches.recipes import paper

RECIPE = dataclasses.replace(
    paper.RECIPE,
    dataset="imagenet2012",
    steps=100_000,
    clip_norm=1.0,
    validation_fraction=0.01,
    published="",
)
