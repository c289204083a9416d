"""The same Vision Transformer as other libraries build it, with random weights.

Every function takes `sizes` (the arguments of `keras_vit.ViTConfig`), `image_size` and
`parameters`, the number that ours has.
"""

from benchmarks.ours import CLASSES

# keras-hub and the like place a norm or a bias elsewhere at most.
TOLERANCE = 0.01


def keras_hub(sizes, image_size, parameters):
    """Returns keras-hub's classifier, a `keras.Model`."""
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(image_size, image_size, 3),
        patch_size=sizes["patch_size"],
        num_layers=sizes["num_layers"],
        num_heads=sizes["num_heads"],
        hidden_dim=sizes["hidden_size"],
        mlp_dim=sizes["mlp_dim"],
    )
    model = keras_hub.models.ViTImageClassifier(
        backbone, num_classes=CLASSES, pooling="token"
    )
    return same_size(model, model.count_params(), parameters)


def vit_keras(sizes, image_size, parameters):
    """Returns vit-keras's classifier, a `keras.Model`."""
    from vit_keras.vit import build_model

    model = build_model(
        image_size=image_size,
        patch_size=sizes["patch_size"],
        num_layers=sizes["num_layers"],
        hidden_size=sizes["hidden_size"],
        num_heads=sizes["num_heads"],
        name="vit",
        mlp_dim=sizes["mlp_dim"],
        classes=CLASSES,
        dropout=0.0,
    )
    return same_size(model, model.count_params(), parameters)


def timm(sizes, image_size, parameters):
    """Returns timm's classifier, a `torch.nn.Module`."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=image_size,
        patch_size=sizes["patch_size"],
        num_classes=CLASSES,
        embed_dim=sizes["hidden_size"],
        depth=sizes["num_layers"],
        num_heads=sizes["num_heads"],
        mlp_ratio=sizes["mlp_dim"] / sizes["hidden_size"],
    )
    return same_size(model, _torch_parameters(model), parameters)


def transformers(sizes, image_size, parameters):
    """Returns Hugging Face's classifier, a `torch.nn.Module`."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=sizes["hidden_size"],
        num_hidden_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["mlp_dim"],
        image_size=image_size,
        patch_size=sizes["patch_size"],
        num_labels=CLASSES,
        attn_implementation="sdpa",
    )
    model = ViTForImageClassification(config)
    return same_size(model, _torch_parameters(model), parameters)


def _torch_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def same_size(model, count, parameters):
    """Returns the model if it has our number of parameters, to within 1%."""
    if abs(count - parameters) > TOLERANCE * parameters:
        raise ValueError(
            f"This peer's model has {count:,} parameters, ours {parameters:,}: it is "
            "another model, and its speed says nothing. Mend benchmarks/peer_models.py."
        )
    return model
