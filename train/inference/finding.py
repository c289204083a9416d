"""Finds a model by what a command line calls it, before anything heavy is imported."""

import pathlib
from typing import NamedTuple

from train.common.errors import RunError
from train.inference import exported_model
from train.inference.run_directory import RunDirectory
from zoo import regular_files
from zoo.catalog.locate import check, named
from zoo.preparation import ModelBits, check_bits
from zoo.regular_files import expand_home, missing_remedy
from zoo.text import PrintableError


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
    try:
        path = expand_home(source, "the model")
        card = named(source) if isinstance(source, str) else None
        if (run := run_of(source)) is not None:
            run.require(run.model)
            return FoundModel(run.model, run)
        if path.suffix == ".keras" and "://" not in str(source):
            if not path.exists():
                raise RunError(
                    f"The model {source} cannot be used: there is no such file: "
                    f"{missing_remedy(path)}"
                )
            return FoundModel(path)
        if card is None:
            exported = exported_model.find(source)
            if exported is not None:
                raise RunError(
                    f"{exported} is an exported file, which keras-vit predict alone "
                    "takes: pass the model that it was exported from."
                )
        check(source)
        return FoundModel()
    except RunError:
        raise
    except PrintableError as error:
        raise RunError(str(error)) from error
    except (ValueError, OSError, KeyError) as error:
        # What the system and libraries raise does not say what it is about.
        reason, remedy = f"{type(error).__name__}: {error}", "check its name or path."
        if isinstance(error, OSError):
            reason = error.strerror or reason
            remedy = regular_files.remedy(error, remedy)
        raise RunError(
            f"The model {source} cannot be used ({reason}): {remedy}"
        ) from error


def run_of(source):
    """Returns the `RunDirectory` that a model's name or path means, None for others."""
    run = RunDirectory(source)
    held = run.models()
    if held.run is None or held.card is not None:
        return None
    # No folder shadows the name of a card.
    is_card = isinstance(source, str) and named(source) is not None
    return None if is_card else run


def bits_of(source, given=None, own=None):
    """Returns how many bits the values of photos of 16 bits have, None for 16.

    Args:
        source: str, the model; its run or its file decides where nothing is given.
        given: int or None.
        own: int or None, those that its file says.

    Returns:
        int or None, `zoo.preparation.ModelBits` where they are not given, and a list of
        str: what to print then.

    Raises:
        ValueError: they are no bits.
        RunError: the run's settings are damaged.

    Example:
        >>> bits_of("vit-b16/imagenet21k", given=12)
        (12, [])
    """
    if given is not None:
        return check_bits(given), []
    run = run_of(source)
    # Runs of earlier versions do not say them in the model.
    bits = (run.read_config().get("bits") if run else None) or own
    if bits is None:
        return None, []
    name = run.path.name if run else source
    return ModelBits(bits), [
        f"The values of PNG and TIFF files of 16 bits are taken for {bits} bits, as "
        f"the model {name} says, unless a file says its own; --bits overrides both."
    ]
