"""The same model for images of another size."""

import keras

import zoo
from keras_vit.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    TransformerBlock,
    initial_values,
)
from keras_vit.sizes import pair
from keras_vit.structure import grid_size, layers_of


def at_image_size(model, image_size, position_embedding_method="released"):
    """Returns a model that computes the same for images of another size.

    Only its position embeddings change: they are resized to the new grid of patches.

    Args:
        model: a functional `keras.Model` of ours, or one of our layers. It is not
            changed, and its weights are copied.
        image_size: int or (height, width) in pixels.
        position_embedding_method: `"released"`, `"bilinear"`, `"bicubic"` or
            `"lanczos3"`, see `zoo.resize`.

    Returns:
        A new functional `keras.Model` of the same layers' names, not compiled.

    Raises:
        ValueError: the model has relative positions, which belong to one number of
            tokens; the image cannot be cut into whole patches; or the method is
            unknown.

    Source:
        Paper section 3.2, fine-tuning and higher resolution.

    Example:

    >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
    >>> at_image_size(model, (48, 64)).input_shape
    (None, 48, 64, 3)
    """
    image_size = pair(image_size, "image_size")
    if any(block.relative_positions for block in layers_of(model, TransformerBlock)):
        raise ValueError(
            f"The model {model.name} has relative positions, which belong to one "
            "number of tokens: build and train it at the image size that you need."
        )
    new_grid = grid_size(model, image_size)

    def copied(layer):
        config = layer.get_config()
        if isinstance(layer, (AddPositionEmbs, AddPositionEmbs2D)):
            config["grid_size"] = new_grid
        return type(layer).from_config(config)

    images = keras.Input(
        (*image_size, model.input_shape[-1]),
        dtype=model.inputs[0].dtype,
        name=model.inputs[0].name,
    )
    with initial_values.left_out():
        resized = keras.models.clone_model(
            model, input_tensors=images, clone_function=copied
        )
    for layer in model.layers:
        if not layer.weights:
            # Among these are inputs, which Keras may give another name.
            continue
        weights = layer.get_weights()
        if isinstance(layer, (AddPositionEmbs, AddPositionEmbs2D)):
            old_grid = layer.grid_size or grid_size(model)
            method = position_embedding_method
            weights = [
                _RESIZE[weight.name](value, old_grid, new_grid, method)
                for weight, value in zip(layer.weights, weights, strict=True)
            ]
        resized.get_layer(layer.name).set_weights(weights)
    return resized


def _rows(embedding, old_grid, new_grid, method):
    """Of a row each (rows, 1, size)."""
    lines = embedding[None, :, 0]
    return zoo.resize(lines, (old_grid[0], 1), (new_grid[0], 1), method)[0][:, None]


def _columns(embedding, old_grid, new_grid, method):
    """Of a column each (1, columns, size)."""
    return zoo.resize(embedding, (1, old_grid[1]), (1, new_grid[1]), method)


_RESIZE = {
    "position_embedding": zoo.resize,
    "row_embedding": _rows,
    "column_embedding": _columns,
    "class_token_embedding": lambda embedding, *_: embedding,
}
