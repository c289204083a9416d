"""keras-vit pretrain --dataset=imagenet2012 --recipe=augreg_imagenet2012_none.

How to train your ViT? (arXiv 2106.10270), section 3: 300 epochs of ImageNet or
ImageNet-21k, with seven settings of RandAugment and mixup. After fine-tuning, ViT-B/16
from ImageNet-21k (medium1) reaches 85.49% on ImageNet (released files). Half of the
released models have --dropout_rate=0.1 --stochastic_depth_rate=0.1 besides, half
--weight_decay=0.03; the means of gradients are kept in bfloat16 as in big_vision.
"""

from train.recipes.recipe import Recipe

# Each has layers and magnitude of RandAugment, and the alpha of mixup.
SETUPS = {
    "none": (None, 0.0),
    "light1": ((2, 0.0), 0.0),
    "light2": ((2, 10.0), 0.2),
    "medium1": ((2, 15.0), 0.2),
    "medium2": ((2, 15.0), 0.5),
    "strong1": ((2, 20.0), 0.5),
    "strong2": ((2, 20.0), 0.8),
}
# Each has the steps of 300 epochs, the head's first bias, the part held out.
DATASETS = {
    "imagenet2012": (92_897, -6.9, 0.01),
    "imagenet21k": (1_039_800, -10.0, 0.001),
}

RECIPES = {
    f"augreg_{dataset}_{setup}": Recipe(
        dataset=dataset,
        model="ViT-B_16",
        weights=None,
        image_size=224,
        steps=steps,
        batch_size=4_096,
        micro_batches=64,
        optimizer="adam",
        learning_rate=1e-3,
        schedule="cosine",
        warmup_steps=10_000,
        weight_decay=0.1,
        momentum_dtype="bfloat16",
        loss="sigmoid",
        head_bias=head_bias,
        dropout_rate=0.0,
        validation_fraction=held_out,
        rand_augment=rand_augment,
        mixup=mixup,
    )
    for dataset, (steps, head_bias, held_out) in DATASETS.items()
    for setup, (rand_augment, mixup) in SETUPS.items()
}
