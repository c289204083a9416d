"""keras-vit finetune --dataset=digits reaches about 98% from scratch.

1,797 handwritten digits that scikit-learn brings: the whole trip without a download.
The number is ours (README); no paper has one for a Vision Transformer on them.
"""

from train.recipes.recipe import Recipe
from zoo import ViTConfig

RECIPE = Recipe(
    dataset="digits",
    model=ViTConfig(
        hidden_size=96, num_layers=4, num_heads=4, mlp_dim=192, patch_size=4
    ),
    weights=None,
    image_size=32,
    steps=1_000,
    batch_size=64,
    micro_batches=1,
    learning_rate=0.1,
    learning_rates=(0.03, 0.1, 0.3),
    warmup_steps=100,
    validation_fraction=0.1,
    crop="shift",
    flip=False,
)
