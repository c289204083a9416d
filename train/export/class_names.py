"""The names of the classes that an export carries."""

from train.inference.heads import has_head


def check_class_names(class_names, model):
    """Makes sure that names fit a model.

    Args:
        class_names: sequence of str in the order of the logits.
        model: a model of `keras_vit`.

    Raises:
        ValueError: the model has no head or other classes, or a name spans lines.

    Example:

    >>> model = keras_vit.VisionTransformer("ViT-Ti_16", image_size=32, classes=2)
    >>> check_class_names(["cat", "dog"], model)
    """
    if not has_head(model):
        raise ValueError(
            f"{model.name} has no head whose classes could have names: leave out "
            "class_names."
        )
    classes = model.output_shape[-1]
    if len(class_names) != classes:
        raise ValueError(
            f"class_names has {len(class_names)} names and {model.name} tells "
            f"{classes} classes apart: pass one name a class."
        )
    for name in class_names:
        if "\n" in name:
            raise ValueError(
                f"class_names has {name!r}, which spans lines: the files of names have "
                "one a line."
            )
