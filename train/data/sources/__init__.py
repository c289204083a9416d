"""Loads a data set by its name, as splits of undecoded images."""

import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from train.data.checking import DataError, check, heic_remedy
from train.data.early_checks import check_columns
from train.data.options import DEFAULTS, DataOptions
from train.data.registry import kind_of
from train.data.sources.corrections import corrected
from train.data.sources.corrupt import find_corrupt, without_corrupt
from train.data.sources.splits import Source, Split, check_name
from zoo.common.safe_text import counted, named
from zoo.network.preparation import check_bits

__all__ = ["DataError", "Source", "Split", "find_corrupt", "load"]


def load(
    dataset: str,
    options: DataOptions = DEFAULTS,
    *,
    validation_fraction: float | None = 0.0,
    log: Callable[[str], None] = print,
    **changes: Any,
) -> Source:
    """Loads a data set for fine-tuning, undecoded and in a fixed order.

    docs/data.md says what a `dataset` may be. Each of the options can be given by its
    name as well, such as `skip_corrupt=True`. `log` is called with a line that names
    what is not used, or left out, if any is. The papers hold out 0.1 of Pets and
    Flowers, 0.02 of CIFAR and 0.01 of ImageNet. `validation` is None exactly when the
    fraction is 0. A fraction of None does not divide the data, which then need nothing
    for training or for testing: `Source.all` has every labelled example.

    Raises:
        ValueError: `bits` are not 8 to 16.
        DataError: when the data set is unknown, unusable or not available.
        RunError: when a package that it needs is not installed.

    Source: An Image is Worth 16x16 Words, appendix B.1.1; vision_transformer,
    configs/common.py.

    Example:
        >>> source = load("digits", validation_fraction=0.1)
        >>> source.train.num_examples, source.validation.num_examples
        (1293, 144)
    """
    options = replace(options, **changes)
    bits = check_bits(options.bits)
    kind = kind_of(dataset)
    check(dataset, options.data_dir)
    check_columns(dataset, options.columns)
    loader = pkgutil.resolve_name(kind.loader)
    source = loader(dataset, validation_fraction, options)
    splits = source.splits().items()
    source = replace(source, **{part: replace(one, bits=bits) for part, one in splits})
    for name in source.class_names:
        check_name(name, f"{source.name}: the class {name!r}")
    if source.ignored:
        count = len(source.ignored)
        log(
            f"{source.name}: {count} {'entry is' if count == 1 else 'entries are'} "
            f"ignored, no {kind.used_files}: {named(source.ignored)}"
            f"{heic_remedy(source.ignored)}"
        )
    for note in source.notes:
        log(f"{source.name}: {note}")
    if options.without or options.relabel:
        # A label of a photo that nothing uses is not one of a further photo.
        unused = "validation" if validation_fraction == 0 else None
        source = corrected(source, options.without, options.relabel, unused)
        added = f", added {len(source.added):,} to train on" if source.added else ""
        log(
            f"{source.name}: left out {counted(len(source.left_out), 'image')}, "
            f"relabelled {len(source.relabelled):,}{added}, as asked"
        )
    if validation_fraction == 0:
        source = replace(source, validation=None)
    if not options.skip_corrupt:
        return source
    source = without_corrupt(source)
    if source.skipped:
        log(
            f"{source.name}: left out {counted(len(source.skipped), 'image')} that "
            f"cannot be read: {named(source.skipped)}"
        )
    return source
