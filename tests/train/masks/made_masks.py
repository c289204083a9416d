"""Small data sets of photos with masks."""

import numpy as np
from PIL import Image

_RANDOM = np.random.RandomState(0)


def noise(*shape):
    return _RANDOM.randint(0, 256, shape).astype("uint8")


def lay_out_masks(folder, parts, layout, values=(0, 1, 2), table=None, size=(12, 16)):
    """Writes so many photos and masks of each part; returns the masks by their names.

    `layout` are the paths of a photo and of its mask. Photos are noise.
    """
    masks = {}
    for part, count in parts.items():
        for number in range(count):
            name = f"{part}{number}"
            masks[name] = _RANDOM.choice(values, size).astype("uint8")
            for path, pixels in zip(
                layout, (noise(*size, 3), masks[name]), strict=True
            ):
                path = folder / path.format(part=part, name=name)
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
    if table is not None:
        (folder / "classes.csv").write_text(table)
    return masks
