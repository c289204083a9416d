"""The 50,000 AugReg checkpoints: their cards, and the best of them for a purpose.

The AugReg paper (https://arxiv.org/abs/2106.10270) released every model it trained:
759 pre-trained files, and 68 fine-tunings of each. Their `index.csv` is downloaded
when it is first needed.
"""

import difflib

from zoo.catalog import cards, index_file
from zoo.catalog.index_file import Row
from zoo.catalog.model_card import Accuracy, CatalogError, Inference, ModelCard, either

FOLDER = "augreg/"
# The paper pre-trains at 224 throughout.
_PRETRAINING_SIZE = 224
_SOURCE = "AugReg index.csv"
# The data set of a `ds`.
_PRETRAINING = {"i1k": "imagenet2012", "i21k": "imagenet21k", "i21k_30": "imagenet21k"}
_KITTI = Inference("classes", "from VTAB's task, the distance to the closest vehicle")
_EITHER_WAY = Inference(
    "representation_size",
    "files pre-trained on ImageNet-1k exist with and without pre_logits; reading this "
    "one shows which it is",
)


def best(
    model: str,
    pretrain: str = "i21k",
    finetune: str | None = None,
    image_size: int | None = None,
) -> ModelCard:
    """Returns the checkpoint that the published rule selects.

    The rule: of the files pre-trained that way, the one with the highest accuracy on
    its own validation split when training ended (`final_val`); of that one's
    fine-tunings on a data set, the one with the highest validation accuracy
    (`adapt_final_val`). Test accuracy is not used. The last of equal ones is chosen.

    Args:
        model: ``"B_16"``, ``"B/16"`` or ``"ViT-B_16"``.
        pretrain: ``"i21k"``, ``"i21k_30"`` or ``"i1k"``.
        finetune: ``"cifar100"``, ``"imagenet2012"``, ``"kitti"``, ``"oxford_iiit_pet"``
            or ``"resisc45"``; None for the pre-trained file.
        image_size: in pixels, to choose among fine-tunings at that size only.

    Raises:
        CatalogError: nothing of that kind was released; the message lists what was.
        StoreError: the index is not available, or in another format.

    Source:
        AugReg paper, section 4.5; the released `vit_jax_augreg.ipynb`.

    Example:
        >>> zoo.augreg.best("B_16", finetune="cifar100").classes  # doctest: +SKIP
        100
    """
    upstream = _highest(rows(model, pretrain), "final_val").filename
    if finetune is None:
        if image_size not in (None, _PRETRAINING_SIZE):
            raise CatalogError(
                f"AugReg pre-trained at {_PRETRAINING_SIZE} only, not at {image_size}: "
                "pass finetune= too, or leave image_size out."
            )
        return card(upstream)
    tuned = rows(model, pretrain, finetune, image_size)
    tuned = [row for row in tuned if row.filename == upstream]
    return card(_highest(tuned, "adapt_final_val").adapt_filename)


def rows(
    model: str | None = None,
    pretrain: str | None = None,
    finetune: str | None = None,
    image_size: int | None = None,
) -> list[Row]:
    """Returns rows of the index as `zoo.catalog.index_file.Row`, at least one.

    The arguments are those of `best`; None does not filter.

    Raises:
        CatalogError: there are none; the message lists what there is.
        StoreError: as for `best`.

    Example:
        >>> len(zoo.augreg.rows())  # doctest: +SKIP
        51509
    """
    name = None if model is None else _paper_name(model)
    columns = ("name", "ds", "adapt_ds", "adapt_resolution")
    wanted = zip(columns, (name, pretrain, finetune, image_size), strict=True)
    remaining, _ = index_file.read()
    so_far = ""
    for column, value in wanted:
        if value is None:
            continue
        chosen = [row for row in remaining if getattr(row, column) == value]
        if not chosen:
            there = sorted({getattr(row, column) for row in remaining})
            there = [f"{v:g}" if isinstance(v, float) else v for v in there]
            raise CatalogError(
                f"No AugReg model{so_far} has {column} {value!r}: choose "
                f"{either(there)}."
            )
        remaining = chosen
        so_far += f" of {column} {value}"
    return list(remaining)


def file_names() -> list[str]:
    """Returns the name of every AugReg file, without folder and ``.npz``.

    Errors of the index are those of `best`.

    Example:
        >>> len(zoo.augreg.file_names())  # doctest: +SKIP
        52268
    """
    _, files = index_file.read()
    return list(files)


def is_file_name(handle: str) -> bool:
    """Returns whether a handle is ``augreg/...`` or begins like an AugReg file name.

    Example:
        >>> zoo.augreg.is_file_name("B_16-i21k-300ep-lr_0.001")
        True
        >>> zoo.augreg.is_file_name("vit-b16/imagenet21k")
        False
    """
    model, _, rest = handle.partition("-")
    begins = model in cards.AUGREG_VARIANTS and rest.startswith(("i1k-", "i21k"))
    return begins or handle.startswith(FOLDER)


def card(name: str) -> ModelCard:
    """Returns the card of an AugReg file, the catalogue's where it has one.

    Args:
        name: str, its name; ``augreg/`` before it and ``.npz`` after it are ignored.

    Raises:
        CatalogError: there is no such file; the message offers near misses.
        StoreError: the index is needed and not available, or in another format.

    Example:
        >>> name = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
        >>> zoo.augreg.card(name).handle
        'vit-b16/augreg-imagenet21k'
    """
    name = name.removeprefix(FOLDER).removesuffix(".npz")
    url = cards.file_url("augreg", f"{name}.npz")
    for released in cards.CARDS.values():
        if released.url == url:
            return released
    _, files = index_file.read()
    if name not in files:
        near = [FOLDER + other for other in _near(name, files)]
        hint = f" Did you mean {either(near)}?" if near else ""
        raise CatalogError(
            f"No AugReg file is called {name!r}.{hint} zoo.list_models('augreg/*') "
            "lists every one."
        )
    row = files[name]
    data_set = _known(_PRETRAINING, row.ds, name)
    training_data, image_size, inferred = (data_set,), _PRETRAINING_SIZE, ()
    notes = f"Pre-trained for {row.epochs:g} epochs."
    if name == row.filename:
        inferred = (_EITHER_WAY,) if row.ds == "i1k" else ()
        top1 = row.final_test if data_set == "imagenet2012" else None
        validation = row.final_val
    else:
        data_set, image_size = row.adapt_ds, int(row.adapt_resolution)
        training_data += (data_set,)
        inferred = (_KITTI,) if data_set == "kitti" else ()
        notes = (
            f"{notes[:-1]}; fine-tuned for {row.adapt_steps:g} steps of 512 images "
            f"with learning rate {row.adapt_lr:g}."
        )
        top1, validation = row.adapt_final_test, row.adapt_final_val
    measured = {"top1": top1, "validation accuracy": validation}
    return ModelCard(
        handle=FOLDER + name,
        variant=_known(cards.AUGREG_VARIANTS, name.partition("-")[0], name),
        release=name,
        image_size=image_size,
        classes=_known(cards.CLASSES, data_set, name),
        representation_size=None,
        usable_head=True,
        url=url,
        training_data=training_data,
        citation=cards.CITATIONS["augreg"],
        accuracies=tuple(
            Accuracy(data_set, metric, round(100 * value, 4), image_size, _SOURCE)
            for metric, value in measured.items()
            if value is not None
        ),
        notes=notes,
        inferred=inferred,
    )


def _known(table, key, name):
    if key not in table:
        raise CatalogError(
            f"The AugReg index says {key!r} of {name}, known are {either(table)}: "
            "fetch the file by its URL."
        )
    return table[key]


def _paper_name(model):
    """Returns a model's name in the index: R26+S/32 for R26_S_32."""
    name = model.replace("ViT-", "").replace("+", "_").replace("/", "_")
    if name not in cards.AUGREG_VARIANTS:
        raise CatalogError(
            f"AugReg released no model {model!r}: choose "
            f"{either(cards.AUGREG_VARIANTS)}."
        )
    return cards.AUGREG_VARIANTS[name].replace("ViT-", "").replace("_", "/")


def _highest(entries, column):
    """Returns the row with the highest value in a column; the last of equal ones."""
    measured = [row for row in entries if getattr(row, column) is not None]
    if not measured:
        raise CatalogError(
            f"The AugReg index has no {column} of these files: pass another finetune "
            "or image_size."
        )
    return max(reversed(measured), key=lambda row: getattr(row, column))


def _near(name, files):
    """Returns similar file names; of a fine-tuned file, those of one pre-training."""
    upstream, tuned, _ = name.partition("--")
    roots = dict.fromkeys(row.filename for row in files.values())
    near = difflib.get_close_matches(upstream, roots, n=3, cutoff=0.8)
    if not tuned or not near:
        return near
    same = [other for other in files if other.startswith(f"{near[0]}--")]
    return difflib.get_close_matches(name, same, n=3, cutoff=0.8) or near
