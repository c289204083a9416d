"""Models built from their weights alone."""

from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.weights.loading import read_weights
from zoo.network import ViTConfig


def load_model(weights, **options):
    """Returns the model that some weights are of, whatever its architecture.

    Args:
        weights: whatever `zoo.locate` finds: a handle such as `"vit-b16/sam"`, the
            name of a published model or the path of its folder, `"hf://org/name"`,
            the path or URL of a file that `zoo.read` reads; or a `zoo.Checkpoint`.
        **options: of `VisionTransformer`, such as `classes` or `image_size`. Pooling
            and channels are by default those of the weights.

    Returns:
        A functional `keras.Model`, see `VisionTransformer`.

    Raises:
        ValueError: an option does not fit the weights.
        TypeError: an option is unknown.
        zoo.CatalogError: no such handle.
        zoo.CheckpointError: the file is not a whole checkpoint.
        zoo.StoreError: the file is not available.

    Source:
        The sizes of the arrays; `zoo.read` says what else is known of a file.

    Example:

    >>> config = ViTConfig(hidden_size=64, num_layers=2, num_heads=2, mlp_dim=128,
    ...                    patch_size=8)
    >>> tiny = VisionTransformer(config, image_size=32, classes=10)
    >>> load_model(save_released_weights(tiny, "tiny.npz"), classes=5).output_shape
    (None, 5)
    """
    checkpoint = read_weights(weights)
    found = {
        "pooling": "token" if checkpoint.class_token else "gap",
        "channels": checkpoint.channels,
    }
    return VisionTransformer(ViTConfig(), checkpoint, **{**found, **options})
