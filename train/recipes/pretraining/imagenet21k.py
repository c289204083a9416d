"""keras-vit pretrain --dataset=imagenet21k reaches 83.97% (paper table 5).

That is what ViT-B/16 reaches on ImageNet after fine-tuning; the recipe is the row of
ImageNet-21k in the paper's table 3 for ViT-B: 90 epochs of 14,197,122 images, and no
clip. ViT-L has 30 or 90 epochs at the same rates. TFDS has no data set imagenet21k:
prepare one of that name, or pass --recipe=imagenet21k with your --dataset.
"""

from train.recipes.recipe import Recipe

RECIPE = Recipe(
    dataset="imagenet21k",
    model="ViT-B_16",
    weights=None,
    image_size=224,
    steps=311_900,
    batch_size=4_096,
    micro_batches=64,
    optimizer="adam",
    learning_rate=1e-3,
    schedule="linear",
    warmup_steps=10_000,
    weight_decay=0.03,
    clip_norm=None,
    dropout_rate=0.1,
    pre_logits=True,
    validation_fraction=0.001,
    published="83.97 on ImageNet after fine-tuning (ViT-B/16, paper table 5)",
)
