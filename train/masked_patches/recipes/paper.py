"""keras-vit masked_patches --dataset=NAME --recipe=paper.

Appendix B.1.2 of the paper: a million steps, about 14 epochs of JFT, after which
ViT-B/16 reaches 79.9% on ImageNet, fine-tuned at 384 (section 4.6). JFT is not
public: NAME is a data set of yours. The weight decay is that of JFT in the paper's
table 3, as B.1.2 has none of its own; it says nothing of a clip or dropout either.
"""

from train.masked_patches.recipes import MaskingRecipe

RECIPE = MaskingRecipe(
    dataset="jft",
    model="ViT-B_16",
    weights=None,
    image_size=224,
    steps=1_000_000,
    batch_size=4_096,
    micro_batches=64,
    optimizer="adam",
    learning_rate=2e-4,
    schedule="cosine",
    warmup_steps=10_000,
    weight_decay=0.1,
    clip_norm=None,
    dropout_rate=0.0,
    validation_fraction=0.001,
    published="79.9 on ImageNet after fine-tuning (ViT-B/16, paper section 4.6)",
)
