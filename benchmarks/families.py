"""Models of other families: found by name, and written by timm with random weights.

Both sides of a comparison then have one network: ours is read from timm's file, as a
user's would be.
"""

import dataclasses
import pathlib
import tempfile

from benchmarks import exports


@dataclasses.dataclass(frozen=True)
class Family:
    """A model as jobs take it, which is `vars` of it.

    Args:
        architecture: str, timm's name.
        file: str, the folder of its random weights.
        output: str, of `benchmarks.ours.OUTPUTS`.
    """

    architecture: str
    file: str
    output: str


def architecture_of(model):
    """Returns timm's name of a handle of the catalogue or of itself, else None.

    Example:
        >>> architecture_of("dinov2-s14/lvd142m")
        'vit_small_patch14_dinov2'
    """
    from zoo.catalog.families import MODELS
    from zoo.libraries.architectures import implied

    name = MODELS[model].architecture if model in MODELS else model.partition(".")[0]
    return None if implied(name) is None else name


def written(architecture, image_size, output):
    """Returns the `Family`, whose weights are in the system's temporary folder."""
    folder = pathlib.Path(tempfile.gettempdir()) / "keras_vit_benchmarks"
    folder /= f"{architecture}-{image_size}"
    if not folder.is_dir():
        settings = {"architecture": architecture, "image_size": image_size}
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            path = pathlib.Path(temporary) / folder.name
            try:
                exports.run("timm_file", path=str(path), **settings)
            except RuntimeError as error:
                raise ValueError(
                    f"timm, which writes the weights of {architecture}: {error}"
                ) from error
            path.rename(folder)
    return Family(architecture, str(folder), output)
