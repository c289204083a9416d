"""Random files in place of the released ones, of the variants made small."""

import pathlib
import threading
import urllib.parse

import numpy as np
from serving import Files
from small_variants import SMALL

import zoo
from zoo.network.released_names import layout, required


def save_release(path, card, image_size=None):
    """Writes random arrays in the shapes of a small Vision Transformer."""
    size = SMALL[card.variant]
    if size.resnet_stages is not None:
        raise ValueError(f"{card.handle} has a ResNet: let a page load a plain one")
    positions = ((image_size or card.image_size) // size.patch_size) ** 2 + 1
    sizes = size.sizes | {
        "head_size": size.hidden_size // size.num_heads,
        **dict.fromkeys(("patch_height", "patch_width"), size.patch_size),
        "channels": 3,
        "positions": positions,
        "classes": card.classes,
        "representation_size": card.representation_size,
    }
    features = {"class_token", "head", *required(size)}
    features |= {"pre_logits"} if card.representation_size else set()
    shapes = layout(size.num_layers, None, features)
    rng = np.random.default_rng(0)
    arrays = {}
    for key, symbols in shapes.items():
        shape = [sizes.get(symbol, symbol) for symbol in symbols]
        arrays[key] = 0.02 * rng.standard_normal(shape, dtype="float32")
        if key.endswith("/scale"):
            arrays[key] += 1
    with open(path, "wb") as file:
        np.savez(file, **arrays)


class Released(Files):
    """Serves what is released, each file made when it is first asked for."""

    lock = threading.Lock()

    def send_head(self):
        url_path = urllib.parse.unquote(self.path)
        path = pathlib.Path(self.translate_path(self.path))
        with self.lock:
            for card in map(zoo.get, () if path.exists() else zoo.list_models()):
                if path_of(card.url) == url_path:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    save_release(path, card)
                    break
        return super().send_head()


def path_of(url):
    """Returns where a mirror has what is at a URL."""
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path)
