"""The same Vision Transformer as other libraries build it, with random weights.

Every function takes `sizes` (the arguments of `keras_vit.ViTConfig`), `image_size` and
`parameters`, the number that ours has, and those that have models of other families
`family`, `vars` of `benchmarks.families.Family`, or None.
"""

import re

from benchmarks.ours import CLASSES

# keras-hub and the like place a norm or a bias elsewhere at most.
TOLERANCE = 0.01


def keras_hub(sizes, image_size, parameters, family=None):
    """Returns keras-hub's classifier, or its encoder of a family, a `keras.Model`."""
    import keras_hub

    if family is not None:
        model = _keras_hub_encoder(sizes, image_size, family)
        return same_size(model, model.count_params(), parameters)
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


def _dinov2(sizes, image_size):
    """Tokens after the last norm; positions of this size, so that none are resized."""
    import keras_hub

    return keras_hub.models.DINOV2Backbone(
        patch_size=sizes["patch_size"],
        num_layers=sizes["num_layers"],
        hidden_dim=sizes["hidden_size"],
        num_heads=sizes["num_heads"],
        intermediate_dim=sizes["mlp_dim"],
        num_register_tokens=sizes["num_registers"],
        use_mask_token=False,
        use_swiglu_ffn=sizes["activation"] == "swiglu",
        image_shape=(image_size, image_size, 3),
        position_embedding_shape=(image_size, image_size),
    )


def _siglip(sizes, image_size):
    """What the query of the attention pooling gives."""
    import keras_hub

    activations = {"gelu_tanh": "gelu_approximate", "gelu": "gelu"}
    return keras_hub.models.SigLIPVisionEncoder(
        patch_size=sizes["patch_size"],
        hidden_dim=sizes["hidden_size"],
        num_layers=sizes["num_layers"],
        num_heads=sizes["num_heads"],
        intermediate_dim=sizes["mlp_dim"],
        intermediate_activation=activations[sizes["activation"]],
        image_shape=(image_size, image_size, 3),
    )


# The architectures of each of its encoders, and what this gives.
_KERAS_HUB = (
    (r"vit_\w+_dinov2", _dinov2, "tokens"),
    (r"vit_\w+_siglip_[0-9]+", _siglip, "features"),
)


def keras_hub_output(architecture):
    """Returns what keras-hub's encoder gives, None if it has none."""
    for pattern, _, output in _KERAS_HUB:
        if re.fullmatch(pattern, architecture):
            return output
    return None


def _keras_hub_encoder(sizes, image_size, family):
    import keras

    [(make, output)] = [
        (make, output)
        for pattern, make, output in _KERAS_HUB
        if re.fullmatch(pattern, family["architecture"])
    ]
    encoder = make(sizes, image_size)
    if family["output"] == output:
        return encoder
    features = encoder.output[:, 0] if output == "tokens" else encoder.output
    if family["output"] == "logits":
        features = keras.layers.Dense(CLASSES)(features)
    return keras.Model(encoder.input, features)


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


def timm(sizes, image_size, parameters, family=None):
    """Returns timm's model, a `torch.nn.Module`."""
    if family is not None:
        model = _timm_family(image_size, family)
        return same_size(model, _torch_parameters(model), parameters)
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


def _timm_family(image_size, family):
    import timm

    model = timm.create_model(
        family["architecture"],
        img_size=image_size,
        num_classes=CLASSES if family["output"] == "logits" else 0,
    )
    if family["output"] == "tokens":
        model.forward = model.forward_features
    return model


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
