"""Models of timm and transformers, run in a process of their own.

PyTorch's compiler and TensorFlow cannot be loaded into one process, so nothing here
imports Keras, and tests call these functions through the fixture of their library.
"""

import json
import pathlib

import numpy as np

HALF = (0.5, 0.5, 0.5)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def photos(side, count=2, seed=0):
    """Smooth images in [0, 1], as photos are; noise alone hides errors of padding."""
    sides = (side, side) if isinstance(side, int) else side
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(size=(count, *(-(-s // 8) for s in sides), 3))
    smooth = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, : sides[0], : sides[1]]
    noise = rng.uniform(-0.1, 0.1, smooth.shape)
    return np.clip(smooth + noise, 0, 1).astype("float32")


def difference(found, expected):
    """Returns the largest difference as a fraction of the largest output."""
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / np.abs(expected).max()


def run(model, images, mean=HALF, std=HALF):
    """Returns a model's output for images in [0, 1], channels last."""
    import torch

    images = (images - np.float32(mean)) / np.float32(std)
    with torch.no_grad():
        output = model.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    return getattr(output, "logits", output).numpy()


def random(make, *args, **kwargs):
    """Makes a model with parameters at which a mistake shows in the logits."""
    import torch

    # Without the time and the memory for its own initial values.
    with torch.device("meta"):
        model = make(*args, **kwargs)
    model.to_empty(device="cpu")
    for module in model.modules():
        # timm computes some buffers, such as which offset a pair has.
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim <= 1:
                centre = 1.0 if name.endswith("weight") else 0.0
                value.copy_(centre + 0.2 * torch.randn_like(value))
            elif "pos" in name or "cls" in name:
                value.copy_(0.5 * torch.randn_like(value))
            else:
                scale = 1.5 * value[0].numel() ** -0.5
                value.copy_(scale * torch.randn_like(value))
    return model


# Models of timm


def save_timm_family(folder, images, name, **model_args):
    """Writes a random model of any family as timm does; returns what it computes."""
    import timm
    from timm.models import save_for_hf

    model = random(timm.create_model, name, **model_args)
    save_for_hf(model, folder, model_args=model_args, safe_serialization=True)
    inputs = model.pretrained_cfg
    return run(model, images, inputs["mean"], inputs["std"])


def load_timm_folder(folder, images, mean=None, std=None):
    """Returns what timm computes with a folder as it is on a hub."""
    import timm

    model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    inputs = model.pretrained_cfg
    return run(model, images, mean or inputs["mean"], std or inputs["std"])


def load_bit(images, name, path, classes):
    """Returns the logits of what timm's own loader makes of a released file."""
    import timm

    model = timm.create_model(name, checkpoint_path=str(path), num_classes=classes)
    return run(model, images)


def describe_bit(name, sides):
    """Returns a model's units a stage, root width, parameters and multiply-adds."""
    import timm
    import torch

    counts = []

    def count(module, inputs, output):
        positions = output.shape[0] * output.shape[2] * output.shape[3]
        counts.append(positions * module.weight.numel())

    with torch.device("meta"):
        model = timm.create_model(name, num_classes=1000).eval()
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.register_forward_hook(count)
        model(torch.zeros((1, 3, *sides)))
    return {
        "depths": tuple(len(stage.blocks) for stage in model.stages),
        "width": model.stem.conv.out_channels,
        "parameters": sum(value.numel() for value in model.parameters()),
        "multiply_adds": sum(counts),
    }


def fields_of_timm():
    """Returns the fields of timm's pretrained configurations."""
    import dataclasses

    import timm

    return [field.name for field in dataclasses.fields(timm.models.PretrainedCfg)]


def cards_of_timm(names):
    """Returns {handle: facts} of {handle: name and tag of a timm model}."""
    import timm
    import torch

    found = {}
    for handle, name in names.items():
        cfg = timm.get_pretrained_cfg(name)
        with torch.device("meta"):
            model = timm.create_model(name, num_classes=cfg.num_classes)
        found[handle] = (
            *(cfg.hf_hub_id, cfg.input_size[1], cfg.num_classes),
            *(sum(value.numel() for value in model.parameters()), cfg.license),
        )
    return found


def tags_of_timm(modules):
    """Returns {tag: (settings, shapes)} of timm's published files, of two blocks each.

    The settings are what timm writes beside a file, the shapes {key: shape}.
    """
    import tempfile

    import timm
    import torch
    from timm.models import _hub, _registry

    found = {}
    for tag in timm.list_models(pretrained=True):
        if _registry._model_to_module[tag.partition(".")[0]] not in modules:
            continue
        classes = timm.get_pretrained_cfg(tag).num_classes
        for arguments in ({"depth": 2}, {}):
            try:
                with torch.device("meta"):
                    model = timm.create_model(tag, num_classes=classes, **arguments)
                break
            except (TypeError, AssertionError):
                continue  # whose blocks are not alike
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "config.json")
            _hub.save_config_for_hf(model, path, model_args=arguments or None)
            settings = path.read_text()
        shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
        found[tag] = settings, shapes
    return found


def inputs_of_timm(folder, photo):
    """Returns mean and deviation of a folder, and what timm makes of a photo."""
    import timm
    from PIL import Image
    from timm.data import create_transform, resolve_data_config

    config = resolve_data_config({}, model=timm.create_model(f"local-dir:{folder}"))
    values = create_transform(**config)(Image.fromarray(photo)).numpy()
    return config["mean"], config["std"], values.transpose(1, 2, 0)


# Models of transformers


def load_transformers(folder, images):
    """Returns all outputs of the class that a folder names, and asserts it is whole."""
    import torch
    import transformers

    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    inputs = json.loads((folder / "preprocessor_config.json").read_text())
    model, report = getattr(transformers, config["architectures"][0]).from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["unexpected_keys"], report
    # Files need no towers of texts, nothing of pre-training, and no pooler.
    unused = (
        *("text_model.", "text_projection", "logit_scale"),
        *("embeddings.mask_token", "pooler.dense."),
    )
    missing = [
        key for key in report["missing_keys"] if not any(part in key for part in unused)
    ]
    assert not missing, missing
    images = (images - inputs["image_mean"]) / inputs["image_std"]
    values = torch.from_numpy(images.transpose(0, 3, 1, 2).astype("float32"))
    with torch.no_grad():
        found = model.eval()(values)
    return {name: value.numpy() for name, value in found.items()}


def save_in_parts(whole, parts):
    """Writes one random classifier of transformers as one file, and as several."""
    import transformers

    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 96, "patch_size": 8, "image_size": 32}
    model = random(
        transformers.ViTForImageClassification,
        transformers.ViTConfig(**sizes, num_labels=10),
    )
    model.save_pretrained(whole)
    model.save_pretrained(parts, max_shard_size="60KB")


def fields_of_transformers(types):
    """Returns {type of model: fields}, and those that all configurations have."""
    import transformers

    classes = {kind: transformers.CONFIG_MAPPING[kind] for kind in types}
    classes["all"] = transformers.PretrainedConfig
    return {kind: sorted(made().to_dict()) for kind, made in classes.items()}


def processed_photo(folder, photo):
    """Returns what the image processor of a folder makes of a photo."""
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    values = processor(photo, return_tensors="np").pixel_values[0]
    return np.asarray(values).transpose(1, 2, 0)
