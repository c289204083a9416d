"""BiT's ResNets in timm, run in a process of their own; see `peer_models`."""

import peer_models


def load_bit(images, name, path, classes):
    """Returns the logits of what timm's own loader makes of a released BiT file.

    Args:
        images: array in [0, 1], channels last.
        name: str, timm's.
        path: path of an `.npz`.
        classes: int.
    """
    import timm

    model = timm.create_model(name, num_classes=classes)
    model.load_pretrained(str(path))
    return peer_models.run(model, images)


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
