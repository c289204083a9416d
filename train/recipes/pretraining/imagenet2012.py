"""keras-vit pretrain --dataset=imagenet2012 reaches 77.91% (paper table 5).

That is ViT-B/16 after fine-tuning at 384; the recipe is row "ImageNet" of the paper's
table 3: 300 epochs of the 99% of train that are not held out.
"""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="imagenet2012",
    model="ViT-B_16",
    weights=None,
    image_size=224,
    steps=92_897,
    batch_size=4_096,
    micro_batches=64,
    optimizer="adam",
    learning_rate=3e-3,
    schedule="cosine",
    warmup_steps=10_000,
    weight_decay=0.3,
    clip_norm=1.0,
    dropout_rate=0.1,
    pre_logits=True,
    validation_fraction=0.01,
    published="77.91 after fine-tuning at 384 (ViT-B/16, paper table 5)",
)
