"""Finds a model by what a command line calls it, before anything heavy is imported."""

import pathlib
from typing import NamedTuple

from train.common.errors import RunError
from train.models.exports import exported_model
from train.models.run_directory import RunDirectory
from zoo.catalog.handles import named
from zoo.catalog.locate import check
from zoo.common import regular_files
from zoo.common.regular_files import expand_home, missing_remedy
from zoo.common.safe_text import PrintableError
from zoo.network.preparation import ModelBits, check_bits


class FoundModel(NamedTuple):
    """What a command line calls a model, and which file it is.

    `keras_file` and `export` are None of models in other files, `run` of those that
    belong to none.
    """

    source: str
    keras_file: pathlib.Path | None = None
    run: RunDirectory | None = None
    export: pathlib.Path | None = None


def find(source: str | FoundModel, exports: bool = False) -> FoundModel:
    """Returns the `FoundModel` that `train.models.loaded_model.load` then loads.

    With `exports` exported files are taken as well, which `load` does not. Raises a
    `RunError` where there is no such model.

    >>> find("vit-b16/imagenet21k").keras_file is None
    True
    """
    if isinstance(source, FoundModel):
        return source
    try:
        return _found(source, exports)
    except RunError:
        raise
    except PrintableError as error:
        raise RunError(str(error)) from error
    except (ValueError, OSError, KeyError) as error:
        # Errors of the system and of libraries do not name the model.
        reason, remedy = f"{type(error).__name__}: {error}", "check its name or path."
        if isinstance(error, OSError):
            reason = error.strerror or reason
            remedy = regular_files.remedy(error, remedy)
        raise RunError(
            f"The model {source} cannot be used ({reason}): {remedy}"
        ) from error


def _found(source, exports):
    path = expand_home(source, "the model")
    card = named(source) if isinstance(source, str) else None
    run = RunDirectory(source)
    held = run.models()
    # No folder shadows the name of a card.
    if held.run and not held.card and card is None:
        run.require(run.model)
        return FoundModel(source, run.model, run)
    if path.suffix == ".keras" and "://" not in str(source):
        if not path.exists():
            raise RunError(
                f"The model {source} cannot be used: there is no such file: "
                f"{missing_remedy(path)}"
            )
        return FoundModel(source, path)
    export = exported_model.find(source) if card is None else None
    if export is not None and exports:
        return FoundModel(source, export=export)
    if export is not None:
        raise RunError(
            f"{export} is an exported file, which keras-vit predict alone takes: pass "
            "the model that it was exported from."
        )
    if card is None and not any(held):
        run.refuse_folder()
    check(source)
    return FoundModel(source)


def bits_of(
    source: str, own: int | None, requested: int | None = None
) -> tuple[int | None, list[str]]:
    """Returns how many bits the values of photos of 16 bits have, None for 16.

    These are `ModelBits` where the model `source` decides, by its `own`, and the list
    is what to print then; the `requested` count instead.

    >>> bits_of("vit-b16/imagenet21k", None, requested=12)
    (12, [])
    """
    if requested is not None or own is None:
        return check_bits(requested), []
    return ModelBits(own), [
        f"The values of PNG and TIFF files of 16 bits are taken for {own} bits, as "
        f"the model {source} says, unless a file says its own; --bits overrides both."
    ]
