"""Writes `tests/goldens/peers`: small models of timm and transformers.

Each case is a folder as the library saves it, in float16, with random numbers in every
array, and `expected.npz`: what the library computes of `photos` in float64, also after
loading the file for images of another size, patch size or number of channels. To write
them again, where PyTorch, timm and transformers are installed:
`python tests/peer_goldens.py tests/goldens/peers`.
"""

import json
import pathlib
import tempfile
import types
import typing

import numpy as np

INPUTS = ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
AS_SAVED = "as saved"
# {part: how keras_vit loads the file for it}
AS_IT_IS = {AS_SAVED: {}}
RESIZED = AS_IT_IS | {"resized": {"image_size": (24, 28)}}


SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "patch_size": 4, "image_size": 16,
}  # fmt: skip
TEXT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    "intermediate_size": 8, "vocab_size": 8, "max_position_embeddings": 8,
}  # fmt: skip
TIMM_SIZES = {
    "img_size": (16, 24), "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2,
    "mlp_ratio": 2, "num_classes": 5,
}  # fmt: skip


class Case(typing.NamedTuple):
    """How a model is made, and what it computes.

    Attributes:
        kind: str, which of the functions `write_...` writes it.
        source: str, timm's architecture or the class of transformers.
        arguments: dict, of timm's architecture or the configuration of transformers.
        parts: {name of a part: arguments of `keras_vit.load_model`}.
        output: str, what counts of what transformers' model returns.
    """

    kind: str
    source: str
    arguments: typing.Mapping = types.MappingProxyType(SIZES)
    parts: typing.Mapping = types.MappingProxyType(RESIZED)
    output: str | None = None

    @property
    def library(self):
        """Whose names the file has."""
        return "transformers" if self.kind == "transformers" else "timm"

    @property
    def sizes(self):
        """The arguments of timm's architecture."""
        given = TIMM_SIZES | dict(self.arguments)
        return {name: value for name, value in given.items() if value is not None}

    def image_size(self, options):
        """The sides of the photos of a part."""
        own = (16, 16) if self.library == "transformers" else self.sizes.get("img_size")
        return options.get("image_size", own or (16, 16))

    def channels(self, options):
        """The channels of the photos of a part."""
        return options.get("channels", self.sizes.get("in_chans", 3))


# The converter to TFLite leaves smaller matrices alone.
WIDE = {"hidden_size": 32, "intermediate_size": 64}
WIDE_TIMM = {"embed_dim": 32, "num_heads": 4}
# These widths follow from the ratio alone.
DINO = {key: SIZES[key] for key in SIZES if key != "intermediate_size"}
DINO |= {"mlp_ratio": 2}
LABELS = {"num_labels": 5}
MASKS = DINO | LABELS | {"num_queries": 3, "num_blocks": 1, "num_register_tokens": 2}
NO_HEAD = {"num_classes": 0}
SQUARE = {"img_size": (16, 16)}
# Twelve heads, as their architecture has, could share these tokens.
TWELVE_HEADS = SQUARE | {"embed_dim": 24}
BOTH = {"vision_config": SIZES, "text_config": TEXT}
GATED = {"use_gated_mlp": True, "hidden_act": "silu"}
GRID = {"ref_feat_shape": (4, 6)}
NAFLEX = {"img_size": None, "pos_embed_grid_size": (4, 4)}
# {name: (architecture, arguments, parts)}
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
    "hybrid_not_square": ("vit_tiny_r_s16_p8_224", {"patch_size": 1}, AS_IT_IS),
    "dinov3_temperature": ("vit_small_patch16_dinov3", {"rope_temperature": 30.0}),
    "eva02_temperature": ("eva02_tiny_patch14_336",
        {"rope_temperature": 500.0, "qkv_fused": True}),
    "four_channels": ("vit_tiny_patch16_224",
        {"in_chans": 4, "act_layer": "gelu_tanh"}),
    "adapted_channels": ("deit_tiny_patch16_224", {},
        {f"{count} channels": {"channels": count} for count in (2, 4, 12)}),
    "deit_timm": ("deit_small_patch16_224", SQUARE),
    "deit_distilled_timm": ("deit_tiny_distilled_patch16_224", WIDE_TIMM),
    "deit3_timm": ("deit3_base_patch16_224", WIDE_TIMM),
    "sbb_reg4_gap_timm": ("vit_medium_patch16_reg4_gap_256", WIDE_TIMM),
    "sbb_wee_reg1_gap_timm": ("vit_wee_patch16_reg1_gap_256", {}),
    "so150m_reg4_gap_timm": ("vit_so150m_patch16_reg4_gap_256", {}),
    "so150m2_reg1_gap_timm": ("vit_so150m2_patch16_reg1_gap_256", {}),
    "so150m_reg4_map_timm": ("vit_so150m_patch16_reg4_map_256", {}),
    "gap_no_registers_timm": ("vit_medium_patch16_gap_240", {}),
    "sbb_rope_reg1_gap_timm": ("vit_mediumd_patch16_rope_reg1_gap_256", {}),
    "flexivit_timm": ("flexivit_small", WIDE_TIMM,
        RESIZED | {"other patch": {"patch_size": (6, 6), "image_size": (24, 30)}}),
    "mae_timm": ("vit_base_patch16_224.mae", WIDE_TIMM | NO_HEAD),
    "ijepa_timm": ("vit_huge_patch14_gap_224.in1k_ijepa", WIDE_TIMM | NO_HEAD),
    "dino_timm": ("vit_small_patch8_224.dino", NO_HEAD),
    "dinov2_timm": ("vit_small_patch14_dinov2", NO_HEAD | TWELVE_HEADS),
    "dinov2_giant_timm": ("vit_giant_patch14_dinov2", WIDE_TIMM | NO_HEAD),
    "dinov2_reg4_timm": ("vit_base_patch14_reg4_dinov2", NO_HEAD | SQUARE),
    "tipsv2_timm": ("vit_base_patch14_reg1_tipsv2", WIDE_TIMM | NO_HEAD),
    "siglip_timm": ("vit_base_patch16_siglip_224.webli", NO_HEAD | TWELVE_HEADS),
    "siglip2_timm": ("vit_so400m_patch16_siglip_256.v2_webli", WIDE_TIMM | NO_HEAD),
    "siglip_gap_timm": ("vit_base_patch16_siglip_gap_224.webli", NO_HEAD),
    "siglip2_naflex_timm": ("naflexvit_base_patch16_siglip", NAFLEX | NO_HEAD),
    "naflex_gap_timm": ("naflexvit_base_patch16_gap", NAFLEX),
    "clip_timm": ("vit_base_patch16_clip_224.laion2b", WIDE_TIMM | SQUARE),
    "clip_quickgelu_timm": ("vit_base_patch32_clip_quickgelu_224.openai", SQUARE),
    "dinov3_timm": ("vit_small_patch16_dinov3", NO_HEAD),
    "dinov3_qkvb_timm": ("vit_base_patch16_dinov3_qkvb", NO_HEAD),
    "dinov3_plus_timm": ("vit_small_plus_patch16_dinov3",
        WIDE_TIMM | NO_HEAD | {"global_pool": "token"}),
    "eva02_tiny_timm": ("eva02_tiny_patch14_336", {}),
    "eva02_base_timm": ("eva02_base_patch14_448", WIDE_TIMM | GRID),
    "eva02_clip_timm": ("eva02_base_patch16_clip_224", {}),
    "eva02_enormous_timm": ("eva02_enormous_patch14_clip_224", {}),
    "pe_core_timm": ("vit_pe_core_base_patch16_224", WIDE_TIMM | GRID),
    "pe_core_gigantic_timm": ("vit_pe_core_gigantic_patch14_448", {}),
    "beit_timm": ("beit_base_patch16_224", SQUARE),
    "beitv2_timm": ("beitv2_large_patch16_224", WIDE_TIMM | SQUARE),
}  # fmt: skip
# transformers wraps these models of timm in files of its own.
WRAPPED = {
    "timm_wrapper": ("vit_small_patch16_dinov3", {}, AS_IT_IS),
    "timm_wrapper_features": ("vit_tiny_patch16_224", NO_HEAD, AS_IT_IS),
}  # fmt: skip
# {name: (class, output, arguments of the configuration, parts)}
TRANSFORMERS = {
    "vit_msn": ("ViTMSNModel", "class token",
        SIZES | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    "vit_pooler": ("ViTModel", "pooler_output", SIZES | {"image_size": (16, 24)},
        {AS_SAVED: {"image_size": (16, 24), "representation_size": 16}}),
    "clip_classifier": ("CLIPForImageClassification", "logits", BOTH | LABELS,
        AS_IT_IS),
    "metaclip_2_classifier": ("MetaClip2ForImageClassification", "logits",
        BOTH | LABELS, AS_IT_IS),
    "metaclip_2_projection": ("MetaClip2VisionModelWithProjection", "image_embeds",
        SIZES | {"projection_dim": 6, "hidden_act": "gelu_pytorch_tanh"}),
    "altclip": ("AltCLIPVisionModel", "pooler_output"),
    "altclip_both": ("AltCLIPModel", "image features",
        BOTH | {"text_config": TEXT | {"project_dim": 6}, "projection_dim": 6}),
    "chinese_clip": ("ChineseCLIPVisionModel", "pooler_output"),
    "chinese_clip_both": ("ChineseCLIPModel", "image features",
        BOTH | {"projection_dim": 6}),
    "data2vec": ("Data2VecVisionModel", "mean of patches",
        SIZES | {"use_relative_position_bias": True}),
    "dinov3_theta": ("DINOv3ViTModel", "pooler_output",
        SIZES | {"rope_theta": 30.0} | GATED),
    "deit_distilled_transformers": ("DeiTForImageClassificationWithTeacher", "logits",
        SIZES | LABELS),
    "deit_one_head_transformers": ("DeiTForImageClassification", "logits",
        SIZES | LABELS),
    "mae_transformers": ("ViTMAEModel", "class token", SIZES | {"mask_ratio": 0.0}),
    "mae_pretraining_transformers": ("ViTMAEForPreTraining",
        "class token of the encoder", SIZES | {"mask_ratio": 0.0} |
        {"decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 1} |
        {"decoder_intermediate_size": 8, "decoder_hidden_size": 8}),
    "ijepa_transformers": ("IJepaModel", "last_hidden_state"),
    "ijepa_classifier_transformers": ("IJepaForImageClassification", "logits",
        SIZES | LABELS),
    "dino_transformers": ("ViTModel", "class token", SIZES | WIDE |
        {"add_pooling_layer": False}),
    "dinov2_transformers": ("Dinov2Model", "pooler_output", DINO),
    "dinov2_giant_transformers": ("Dinov2Model", "pooler_output", DINO |
        {"use_swiglu_ffn": True}),
    "dinov2_classifier_transformers": ("Dinov2ForImageClassification", "logits",
        DINO | LABELS),
    "dinov2_reg4_transformers": ("Dinov2WithRegistersModel", "pooler_output", DINO),
    "dinov2_reg4_classifier_transformers": ("Dinov2WithRegistersForImageClassification",
        "logits", DINO | {"hidden_size": 32, "use_swiglu_ffn": True} | LABELS),
    "tipsv2_transformers": ("Tipsv2VisionModel", "pooler_output", DINO),
    "tipsv2_both_transformers": ("Tipsv2Model", "image features", {"vision_config": DINO
        | {"use_swiglu_ffn": True}, "text_config": TEXT | {"hidden_size": 16}}),
    "siglip_transformers": ("SiglipVisionModel", "pooler_output", SIZES | WIDE),
    "siglip_no_head_transformers": ("SiglipVisionModel", "last_hidden_state", SIZES |
        {"vision_use_head": False}),
    "siglip_both_transformers": ("SiglipModel", "image features", BOTH),
    "siglip_classifier_transformers": ("SiglipForImageClassification", "logits",
        BOTH | LABELS),
    "siglip2_naflex_transformers": ("Siglip2VisionModel", "pooler_output", SIZES |
        {"num_patches": 16}),
    "clip_transformers": ("CLIPVisionModel", "pooler_output"),
    "clip_projection_transformers": ("CLIPVisionModelWithProjection", "image_embeds",
        SIZES | {"projection_dim": 9, "hidden_act": "gelu"}),
    "clip_both_transformers": ("CLIPModel", "image features", BOTH | {"projection_dim":
        10}),
    "dinov3_transformers": ("DINOv3ViTModel", "pooler_output", SIZES |
        {"num_register_tokens": 4}),
    "dinov3_plus_transformers": ("DINOv3ViTModel", "pooler_output", SIZES | GATED |
        {"num_register_tokens": 4, "query_bias": False, "value_bias": False}),
    "eomt": ("EomtForUniversalSegmentation", "masks", MASKS, AS_IT_IS),
    "eomt_swiglu": ("EomtForUniversalSegmentation", "masks", MASKS |
        {"use_swiglu_ffn": True, "num_blocks": 2, "num_upscale_blocks": 1}, AS_IT_IS),
    "eomt_dinov3": ("EomtDinov3ForUniversalSegmentation", "masks", SIZES | LABELS |
        {"num_queries": 3, "num_blocks": 2, "num_register_tokens": 2}, AS_IT_IS),
    "beit_transformers": ("BeitForImageClassification", "logits", SIZES | WIDE | LABELS
        | {"use_relative_position_bias": True}),
    "beit_shared_transformers": ("BeitForImageClassification", "logits", SIZES | LABELS
        | {"use_relative_position_bias": True, "use_mean_pooling": False} |
        {"use_shared_relative_position_bias": True, "layer_scale_init_value": 0.0}),
    "beit_positions_transformers": ("BeitForImageClassification", "logits", SIZES |
        LABELS | {"use_shared_relative_position_bias": True} |
        {"use_absolute_position_embeddings": True}),
}  # fmt: skip
CASES = {
    **{name: Case("timm", *row) for name, row in TIMM.items()},
    **{name: Case("wrapped", *row) for name, row in WRAPPED.items()},
    **{
        name: Case("transformers", source, *rest, output=output)
        for name, (source, output, *rest) in TRANSFORMERS.items()
    },
}


def photos(height, width, channels=3):
    """Returns two photos of numbers without a pattern, uint8."""
    numbers = np.arange(2 * height * width * channels, dtype="uint64")
    mixed = numbers * numbers * 2654435761 % 2**32 >> 24
    return mixed.astype("uint8").reshape(2, height, width, channels)


def randomised(model):
    """Gives every array of a model random numbers that float16 has, in place.

    Embeddings are small, so that another epsilon of the first norm shows.
    """
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            centre = 1.0 if value.ndim == 1 and "bias" not in name else 0.0
            scale = 0.3 if value.ndim <= 1 else 1.5 * max(value[0].numel(), 1) ** -0.5
            scale = 0.5 if any(part in name for part in ("pos", "token")) else scale
            value.copy_((centre + scale * torch.randn_like(value)).half())
            if any(part in name for part in ("patch_embed", "pos_embed", "_token")):
                value.mul_(0.01).copy_(value.half())
        for name, value in model.named_buffers():
            if name == "attn_mask_probs":  # as after training
                value.zero_()
    return model.eval()


def halved(model):
    """Makes the arrays of a model float16, but not what it computes with besides."""
    for value in model.parameters():
        value.data = value.data.half()
    return model


def normalised(images, inputs):
    """Returns photos (uint8) as a network of PyTorch takes them, in float64."""
    import torch

    mean, std = (np.array(values) for values in inputs)
    values = (images / 255 - mean) / std
    return torch.from_numpy(values.transpose(0, 3, 1, 2).copy())


def answer(model, output, values, **options):
    """Returns what a model in float64 computes of a batch: a field, or made of one."""
    import torch

    model = model.double()
    if output == "class token of the encoder":
        model, output = model.vit, "class token"
    with torch.no_grad():
        if output == "image features":
            found = model.get_image_features(values, **options)
            return getattr(found, "pooler_output", found).numpy()
        found = model(values, **options)
    if output == "masks":
        parts = found.class_queries_logits, found.masks_queries_logits
        return np.concatenate([one.flatten(1).numpy() for one in parts], axis=1)
    if output == "class token":
        return found.last_hidden_state[:, 0].numpy()
    if output == "mean of patches":
        return found.last_hidden_state[:, 1:].mean(1).numpy()
    return (found if output is None else getattr(found, output)).numpy()


def naflex_answer(model, output, values):
    """Returns what SigLIP 2's NaFlex computes of patches, as (y, x, channel) each."""
    import torch

    size = model.config.patch_size
    count, channels, height, width = values.shape
    grid = (height // size, width // size)
    patches = values.reshape(count, channels, grid[0], size, grid[1], size)
    patches = patches.permute(0, 2, 4, 3, 5, 1).reshape(count, grid[0] * grid[1], -1)
    mask = torch.ones(patches.shape[:2], dtype=torch.int32)
    shapes = torch.tensor([grid] * count)
    return answer(
        model, output, patches, pixel_attention_mask=mask, spatial_shapes=shapes
    )


def write_transformers(folder, case):
    """Writes a case of transformers; returns the arrays of what it computes."""
    import inspect

    import transformers

    kind, arguments = getattr(transformers, case.source), dict(case.arguments)
    pooler = {"add_pooling_layer"} & arguments.keys()
    own = {name: arguments.pop(name) for name in pooler}
    model = randomised(kind(kind.config_class(**arguments), **own))
    halved(model).save_pretrained(folder)
    mean, std = INPUTS
    table = {"image_mean": mean, "image_std": std, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(table))
    resizes = any(
        "interpolate_pos_encoding" in inspect.signature(function).parameters
        for function in (model.forward, getattr(model, "get_image_features", answer))
    )
    compute = naflex_answer if case.source.startswith("Siglip2") else answer
    found = {}
    for part, options in case.parts.items():
        values = normalised(photos(*case.image_size(options)), INPUTS)
        how = {"interpolate_pos_encoding": True} if resizes and part != AS_SAVED else {}
        found[part] = compute(model, case.output, values, **how)
    return found


def write_timm(folder, case):
    """Writes a case of timm; returns the arrays of what it computes.

    For other sizes timm loads the file in float32, as it rounds what it adapts to the
    dtype of a file.
    """
    import timm
    from timm.models import save_for_hf

    sizes = case.sizes
    model, found = randomised(timm.create_model(case.source, **sizes)), {}
    with tempfile.TemporaryDirectory() as exact:
        save_for_hf(model, exact, model_args=sizes, safe_serialization=True)
        names = {"image_size": "img_size", "channels": "in_chans"}
        for part, options in case.parts.items():
            channels = case.channels(options)
            images = photos(*case.image_size(options), channels)
            options = {names.get(name, name): one for name, one in options.items()}
            if "img_size" not in sizes:
                options = {}
            loaded = timm.create_model(f"local-dir:{exact}", pretrained=True, **options)
            inputs = [loaded.pretrained_cfg[name] for name in ("mean", "std")]
            if channels != 3:  # as `timm.data.model_config`
                inputs = [[np.mean(values)] * channels for values in inputs]
            found[part] = answer(loaded.eval(), None, normalised(images, inputs))
    save_for_hf(halved(model), folder, model_args=sizes, safe_serialization=True)
    return found


def write_wrapped(folder, case):
    """Writes a case of timm's model in transformers; returns what it computes."""
    import timm
    import transformers

    sizes = dict(case.sizes)
    labels = sizes.pop("num_classes")
    kind = "TimmWrapperForImageClassification" if labels else "TimmWrapperModel"
    inputs = timm.get_pretrained_cfg(case.source).to_dict()
    inputs["mean"], inputs["std"] = INPUTS
    config = transformers.TimmWrapperConfig(
        architecture=case.source,
        model_args=sizes,
        pretrained_cfg=inputs,
        num_labels=labels,
    )
    model = randomised(getattr(transformers, kind)(config))
    halved(model).save_pretrained(folder)
    values = normalised(photos(*sizes["img_size"]), INPUTS)
    output = "logits" if labels else "pooler_output"
    return {AS_SAVED: answer(model, output, values)}


WRITERS = {
    "timm": write_timm, "transformers": write_transformers, "wrapped": write_wrapped
}  # fmt: skip


def main(root):
    """Writes every case whose folder is not there."""
    for name, case in CASES.items():
        folder = pathlib.Path(root, name)
        if not folder.exists():
            folder.mkdir(parents=True)
            np.savez(folder / "expected.npz", **WRITERS[case.kind](folder, case))


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
