"""Writes `tests/goldens/peers`: small models of timm and transformers.

Each case is a folder as the library saves it, in float16, with random numbers in every
array, and `expected.npz`: photos (uint8, not square where the library allows it) and
what the library computes of them in float64. To write them again, where PyTorch,
timm and transformers are installed: `python tests/peer_goldens.py tests/goldens/peers`.
"""

import json
import pathlib
import sys

import numpy as np

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "patch_size": 4, "image_size": 16,
}  # fmt: skip
TEXT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    "intermediate_size": 8, "vocab_size": 8, "max_position_embeddings": 8,
}  # fmt: skip
LABELS = {"num_labels": 5}
INPUTS = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
# {case: (class of transformers, its configuration's class, what is computed, fields)}
TRANSFORMERS = {
    "vit_msn": ("ViTMSNModel", "ViTMSNConfig", "class token", SIZES),
    "clip_classifier": (
        "CLIPForImageClassification",
        "CLIPConfig",
        "logits",
        {"vision_config": SIZES, "text_config": TEXT, **LABELS},
    ),
    "metaclip_2_classifier": (
        "MetaClip2ForImageClassification",
        "MetaClip2Config",
        "logits",
        {"vision_config": SIZES, "text_config": TEXT, **LABELS},
    ),
    "metaclip_2_projection": (
        "MetaClip2VisionModelWithProjection",
        "MetaClip2VisionConfig",
        "image_embeds",
        {**SIZES, "projection_dim": 6},
    ),
    "altclip": ("AltCLIPVisionModel", "AltCLIPVisionConfig", "pooler_output", SIZES),
    "altclip_both": (
        "AltCLIPModel",
        "AltCLIPConfig",
        "image features",
        {
            "vision_config": SIZES,
            "text_config": {**TEXT, "project_dim": 6},
            "projection_dim": 6,
        },
    ),
    "chinese_clip": (
        "ChineseCLIPVisionModel",
        "ChineseCLIPVisionConfig",
        "pooler_output",
        SIZES,
    ),
    "chinese_clip_both": (
        "ChineseCLIPModel",
        "ChineseCLIPConfig",
        "image features",
        {"vision_config": SIZES, "text_config": TEXT, "projection_dim": 6},
    ),
    "data2vec": (
        "Data2VecVisionModel",
        "Data2VecVisionConfig",
        "mean of patches",
        {**SIZES, "use_relative_position_bias": True},
    ),
    "dinov3_theta": (
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        "pooler_output",
        {**SIZES, "rope_theta": 30.0, "use_gated_mlp": True, "hidden_act": "silu"},
    ),
}
TIMM_SIZES = {
    "img_size": (16, 24), "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2,
    "mlp_ratio": 2, "num_classes": 5,
}  # fmt: skip
# {case: (architecture, arguments)}
TIMM = {
    "beit3": ("beit3_base_patch16_224", {}),
    "intern300m": ("vit_intern300m_patch14_448", {}),
    "lingbot": ("vit_small_patch16_lingbot", {}),
    "lingbot_giant": ("vit_giant_patch16_lingbot", {}),
    "miil": ("vit_base_patch16_224_miil", {}),
    "radio": ("vit_base_patch16_radio_v3", {}),
    "radio_v4": ("vit_huge_patch16_radio_v4", {}),
    "rope": ("vit_small_patch16_rope_224", {}),
    "rope_and_positions": ("vit_base_patch16_rope_ape_224", {}),
    "rpn": ("vit_base_patch16_rpn_224", {}),
    "test_vit2": ("test_vit2", {}),
    "hybrid_not_square": (
        "vit_tiny_r_s16_p8_224",
        {"img_size": (16, 24), "patch_size": 1},
    ),
    "dinov3_temperature": ("vit_small_patch16_dinov3", {"rope_temperature": 30.0}),
    "eva02_temperature": (
        "eva02_tiny_patch14_336",
        {"rope_temperature": 500.0, "qkv_fused": True},
    ),
    "four_channels": ("vit_tiny_patch16_224", {"in_chans": 4}),
}
WRAPPED = {
    "timm_wrapper": ("TimmWrapperForImageClassification", "vit_small_patch16_dinov3"),
    "timm_wrapper_features": ("TimmWrapperModel", "vit_tiny_patch16_224"),
}
# {case: (architecture, channels)}
ADAPTED = {"adapted_channels": ("deit_tiny_patch16_224", (2, 4, 12))}


def photos(height, width, channels=3):
    """Returns two random photos, uint8."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (2, height, width, channels), dtype="uint8")


def randomised(model):
    """Gives every array of a model random numbers that float16 has, in place."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            centre = 1.0 if value.ndim == 1 and "bias" not in name else 0.0
            scale = 0.3 if value.ndim <= 1 else 1.5 * max(value[0].numel(), 1) ** -0.5
            scale = 0.5 if any(part in name for part in ("pos", "token")) else scale
            value.copy_((centre + scale * torch.randn_like(value)).half())
    return model.eval()


def halved(model):
    """Makes the arrays of a model float16, but not what it computes with besides."""
    for value in model.parameters():
        value.data = value.data.half()
    return model


def answer(model, what, images, inputs):
    """Returns what a model in float64 computes of uint8 photos."""
    import torch

    mean, std = (np.array(values) for values in inputs)
    values = (images / 255 - mean) / std
    values = torch.from_numpy(values.transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        if what == "image features":
            found = model.double().get_image_features(values)
            return getattr(found, "pooler_output", found).numpy()
        found = model.double()(values)
    if what == "class token":
        return found.last_hidden_state[:, 0].numpy()
    if what == "mean of patches":
        return found.last_hidden_state[:, 1:].mean(1).numpy()
    return (found if what is None else getattr(found, what)).numpy()


def write_transformers(folder, kind, config, what, fields):
    """Writes a case of transformers."""
    import transformers

    config = getattr(transformers, config)(**fields)
    model = randomised(getattr(transformers, kind)(config))
    halved(model).save_pretrained(folder)
    table = dict(zip(("image_mean", "image_std"), INPUTS, strict=True))
    (folder / "preprocessor_config.json").write_text(json.dumps(table))
    images = photos(16, 24 if "DINOv3" in kind else 16)
    np.savez(folder / "expected.npz", photos=images, **{
        "answer": answer(model, what, images, INPUTS)
    })  # fmt: skip


def inputs_of(model, channels):
    """Returns mean and deviation of the images that timm gives a model.

    Of other channels than it has these of: their mean, as `timm.data.model_config`.
    """
    inputs = model.pretrained_cfg
    return [
        inputs[name] if channels == 3 else [np.mean(inputs[name])] * channels
        for name in ("mean", "std")
    ]


def write_timm(folder, name, arguments):
    """Writes a case of timm."""
    import timm
    from timm.models import save_for_hf

    sizes = {**TIMM_SIZES, **arguments}
    channels = sizes.get("in_chans", 3)
    model = randomised(timm.create_model(name, **sizes))
    save_for_hf(halved(model), folder, model_args=sizes, safe_serialization=True)
    images = photos(*sizes["img_size"], channels)
    inputs = inputs_of(model, channels)
    np.savez(folder / "expected.npz", photos=images, **{
        "answer": answer(model, None, images, inputs)
    })  # fmt: skip


def write_wrapped(folder, kind, name):
    """Writes a case of timm's model in transformers."""
    import timm
    import transformers

    sizes = dict(TIMM_SIZES)
    labels = sizes.pop("num_classes") if "Classification" in kind else 0
    sizes.pop("num_classes", None)
    inputs = timm.get_pretrained_cfg(name).to_dict()
    inputs["mean"], inputs["std"] = INPUTS
    config = transformers.TimmWrapperConfig(
        architecture=name, model_args=sizes, pretrained_cfg=inputs, num_labels=labels
    )
    model = randomised(getattr(transformers, kind)(config))
    halved(model).save_pretrained(folder)
    images = photos(*sizes["img_size"])
    what = "logits" if labels else "pooler_output"
    np.savez(folder / "expected.npz", photos=images, **{
        "answer": answer(model, what, images, INPUTS)
    })  # fmt: skip


def write_adapted(folder, name, channels):
    """Writes a case of timm, and what it makes of it for images of other channels."""
    import timm
    from timm.models import save_for_hf

    sizes = TIMM_SIZES
    model = randomised(timm.create_model(name, **sizes))
    # In float32, as timm rounds what it adapts to the dtype of a file.
    save_for_hf(model, folder, model_args=sizes, safe_serialization=True)
    found = {}
    for count in channels:
        loaded = timm.create_model(
            f"local-dir:{folder}", pretrained=True, in_chans=count
        ).eval()
        inputs = inputs_of(loaded, count)
        images = photos(*sizes["img_size"], count)
        found[f"photos_{count}"] = images
        found[f"answer_{count}"] = answer(loaded, None, images, inputs)
    np.savez(folder / "expected.npz", **found)


def main(root):
    """Writes every case whose folder is not there."""
    for cases, write in (
        (TRANSFORMERS, write_transformers),
        (TIMM, write_timm),
        (WRAPPED, write_wrapped),
        (ADAPTED, write_adapted),
    ):
        for name, arguments in cases.items():
            folder = pathlib.Path(root, name)
            if not folder.exists():
                folder.mkdir(parents=True)
                write(folder, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
