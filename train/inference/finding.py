"""Finds a model by what a command line calls it, before anything heavy is imported."""

import pathlib
from typing import NamedTuple

from train.common.errors import RunError
from train.inference import exported_model
from train.inference.run_directory import RunDirectory
from zoo.catalog.locate import named, resolve
from zoo.regular_files import expand_home


class FoundModel(NamedTuple):
    """A `.keras` file and the run that it belongs to, None where there is none."""

    keras_file: pathlib.Path | None = None
    run: RunDirectory | None = None


def find(source):
    """Returns the `FoundModel` that `train.inference.loaded_model.load` then loads.

    Args:
        source: str, what `load` takes.

    Raises:
        RunError: there is no such model.

    Example:
        >>> find("vit-b16/imagenet21k").keras_file is None
        True
    """
    path = expand_home(source)
    try:
        card = named(source) if isinstance(source, str) else None
        run = RunDirectory(path)
        # No folder shadows the name of a card.
        if card is None and (held := run.models()).run and not held.card:
            run.require(run.model)
            return FoundModel(run.model, run)
        if path.suffix == ".keras":
            if not path.exists():
                raise OSError("there is no such file: check the path.")
            return FoundModel(path)
        if card is None:
            exported = exported_model.find(path)
            if exported is not None:
                raise ValueError(
                    f"{exported} is an exported file, which keras-vit predict alone "
                    "takes: pass the model that it was exported from."
                )
        resolve(source)
        return FoundModel()
    except (ValueError, OSError, KeyError) as error:
        raise RunError(f"The model {source} cannot be used: {error}") from error
