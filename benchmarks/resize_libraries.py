"""What `benchmarks.resize` times: each library resizing a table of embeddings.

From a NumPy array to a NumPy array, the class token's row kept as it is.
"""

import itertools

import numpy as np

from benchmarks.contest import row

PEERS = {}


def table(old, hidden_size):
    """Returns a random table of a grid and a class token, as released files have it."""
    shape = (1, 1 + old[0] * old[1], hidden_size)
    return np.random.default_rng(0).standard_normal(shape, "float32")


def keras_vit(tasks, hidden_size, results):
    """`zoo.resize`."""
    import zoo

    return _steps(zoo.resize, tasks, hidden_size, results)


@row(PEERS, "scipy", "scipy", ("scipy",))
def scipy(tasks, hidden_size, results):
    """`scipy.ndimage.zoom` as the released code calls it."""
    from scipy import ndimage

    def resize(grid, new, method):
        zoom = (new[0] / grid.shape[0], new[1] / grid.shape[1], 1)
        return ndimage.zoom(grid, zoom, order=1)

    return _steps(_on_grids(resize), tasks, hidden_size, results)


@row(PEERS, "timm", "timm", ("torch", "timm"))
def timm(tasks, hidden_size, results):
    """`timm.layers.resample_abs_pos_embed`, PyTorch's antialiased interpolation."""
    import torch
    from timm.layers import resample_abs_pos_embed

    def resize(positions, old, new, method):
        return resample_abs_pos_embed(
            torch.from_numpy(positions), list(new), list(old), interpolation=method
        ).numpy()

    return _steps(resize, tasks, hidden_size, results)


@row(PEERS, "tensorflow", "tensorflow", ("tensorflow",))
def tensorflow(tasks, hidden_size, results):
    """`tf.image.resize`, antialiased."""
    import tensorflow as tf

    def resize(grid, new, method):
        return tf.image.resize(grid, new, method=method, antialias=True).numpy()

    return _steps(_on_grids(resize), tasks, hidden_size, results)


@row(PEERS, "jax", "jax", ("jax",))
def jax(tasks, hidden_size, results):
    """`jax.image.resize`, compiled."""
    import jax

    compiled = jax.jit(jax.image.resize, static_argnums=(1, 2))

    def resize(grid, new, method):
        return np.asarray(compiled(grid, (*new, grid.shape[-1]), method))

    return _steps(_on_grids(resize), tasks, hidden_size, results)


def _on_grids(resize):
    """Makes a function of tables from one of grids alone."""

    def resize_table(positions, old, new, method):
        grid = positions[0, 1:].reshape(*old, -1)
        rows = resize(grid, new, method).reshape(1, new[0] * new[1], -1)
        return np.concatenate([positions[:, :1], rows], axis=1)

    return resize_table


def _steps(resize, tasks, hidden_size, results):
    """Writes what all tasks give, then returns a step that does them in turn."""
    tasks = [
        (table(old, hidden_size), tuple(old), tuple(new), method)
        for old, new, method in tasks
    ]
    np.savez(results, **{str(i): resize(*task) for i, task in enumerate(tasks)})
    turns = itertools.cycle(tasks)
    return lambda: resize(*next(turns))
