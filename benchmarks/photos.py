"""A folder of JPEGs to read, as `train.finetune --dataset=FOLDER` takes it."""

import pathlib

MADE = 250
LONG_SIDE, SHORT_SIDE = 500, 375


def fill(folder, count, images=None):
    """Fills a folder with as many photos as asked for, some of them links to others."""
    folder = pathlib.Path(folder)
    if images is None:
        originals = _make(folder / "originals", min(count, MADE))
    else:
        originals = _find(pathlib.Path(images))
    for part, size in (("train", count), ("test", 1)):
        (folder / part / "photo").mkdir(parents=True)
        for index in range(size):
            link = folder / part / "photo" / f"{index:06}.jpg"
            link.symlink_to(originals[index % len(originals)])


def _find(images):
    found = sorted(
        path.resolve()
        for path in images.rglob("*")
        if path.suffix.lower() in (".jpg", ".jpeg")
    )
    if not found:
        raise ValueError(
            f"--images={images}: there is no .jpg in it or below; name a folder of "
            "photos, or leave the flag out."
        )
    return found


def _make(folder, count):
    """Writes images as smooth as photos, and as dear to decode: 60 kB each."""
    import numpy as np
    from PIL import Image

    folder.mkdir()
    random = np.random.default_rng(0)
    paths = []
    for index in range(count):
        sides = LONG_SIDE, SHORT_SIDE
        width, height = sides if index % 4 else sides[::-1]
        image = np.zeros((height, width, 3), "float32")
        # Half the contrast at twice the detail, as in photos.
        for octave in range(6):
            cells = 3 * 2**octave
            coarse = random.normal(0, 64 / 2**octave, (cells, cells, 3)).astype(
                "float32"
            )
            for channel in range(3):
                part = Image.fromarray(coarse[..., channel])
                image[..., channel] += np.asarray(
                    part.resize((width, height), Image.Resampling.BICUBIC)
                )
        # The noise of a camera, alike in all colours.
        image += 128 + random.normal(0, 4, (height, width, 1))
        pixels = np.clip(image, 0, 255).astype("uint8")
        paths.append((folder / f"{index:06}.jpg").resolve())
        Image.fromarray(pixels).save(paths[-1], quality=90)
    return paths
