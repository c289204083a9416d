"""Lists, downloads, checks and converts released models.

$ keras-vit zoo list '*augreg*'

Exit codes: 0 success, 1 failure (one line per reason on the error stream), 2 wrong
usage.
"""

import argparse
import dataclasses
import difflib
import json
import os
import pathlib
import re
import sys
import warnings
from typing import NoReturn

import zoo
from keras_vit_start import typed
from zoo import store
from zoo.catalog import augreg, cards, registry
from zoo.catalog.locate import fetch_card, read_located, with_names
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import as_flags, printable
from zoo.libraries.writing import NAMINGS
from zoo.store import hub

# Wide enough that no line is folded where the output is not a terminal.
_PIPE_WIDTH = 1000
_NUMBERS = {"size", "image", "classes", "top-1"}
_ENVIRONMENT = (
    "KERAS_VIT_CACHE", "XDG_CACHE_HOME", "KERAS_VIT_OFFLINE", "KERAS_VIT_MIRROR",
    registry.VARIABLE,
)  # fmt: skip


def _list(pattern, as_json):
    """List the released and published models."""
    shown = [zoo.get(handle) for handle in zoo.list_models(pattern)]
    if not shown:
        raise zoo.CatalogError(
            f"No handle matches {pattern!r}: {typed('zoo')} list shows every one."
        )
    files = _local_files(shown)
    if as_json:
        return _print_json([*map(_document, shown, files)])
    rows = []
    for card, file in zip(shown, files, strict=True):
        top1 = "" if card.top1 is None else f"{card.top1:.2f}"
        side = "x".join(dict.fromkeys(map(str, _sides(card))))
        here = "yes" if file else ""
        classes = str(card.classes or "")
        rows.append((card.handle, _size(card, 0), side, classes, top1, here))
    caption = (
        "top-1: percent, as published: ImageNet, or a published model's own test split."
        " ~: computed. here: on this machine."
    )
    columns = ("handle", "size", "image", "classes", "top-1", "here")
    return _print_table(rows, columns, caption)


def _info(handle, as_json):
    """Show the card of a model."""
    card = zoo.get(handle)
    [file] = _local_files([card])
    if as_json:
        return _print_json(_document(card, file))
    return _print_table(_facts(card, file))


def _download(handles, as_json):
    """Download models and print the paths of their files."""
    done = []
    for handle in handles:
        try:
            card = zoo.get(handle)
            path = str(_verified(card))
        except (zoo.CatalogError, OSError) as error:
            _complain(error)
            continue
        done.append({"handle": card.handle, "path": path})
        if not as_json:
            print(printable(path), flush=True)
    if as_json:
        _print_json(done)
    return int(len(done) < len(handles))


def _verified(card):
    """Returns the path of a card's file, which is downloaded again if it changed."""
    path = fetch_card(card)
    if any(file.path == path for file in store.cached()):
        try:
            zoo.verify(path)
        except zoo.StoreError as error:
            _complain(f"{error} Downloading it again.")
            path.unlink()
            path = fetch_card(card)
    return path


def _verify(handles, as_json):
    """Check every byte of downloaded files."""
    files = _local_files([*map(zoo.get, handles)]) if handles else store.cached()
    for handle, file in zip(handles, files, strict=False):
        if file is not None and hub.is_handle(file.url):
            raise zoo.StoreError(
                f"{handle} is in the cache of huggingface_hub, which checks it: hf "
                f"cache verify {file.url.removeprefix('hf://')}"
            )
        if file is None:
            raise zoo.StoreError(
                f"{handle} is not in the cache: {typed('zoo')} download {handle}"
            )
    checks = [*map(_check, files)]
    bad = [check for check in checks if check["error"]]
    if as_json:
        _print_json(checks)
    else:
        rows = [
            (c["handle"], _mib(c["size"]), "ok" if c["ok"] else "bad", c["path"])
            for c in checks
        ]
        _print_table(rows, ("handle", "size", "state", "path"))
    for check in bad:
        _complain(check["error"])
    return int(bool(bad))


def _convert(source, destination, naming, num_heads, as_json):
    """Write a checkpoint in another format."""
    checkpoint = read_located(source, num_heads=num_heads)
    if naming != "released":
        checkpoint = with_names(checkpoint)
    destination = str(expand_home(destination))
    pathlib.Path(destination).parent.mkdir(parents=True, exist_ok=True)
    zoo.write(destination, checkpoint, naming=naming)
    written = {
        "source": checkpoint.path,
        "destination": destination,
        "naming": naming,
        "arrays": len(checkpoint.arrays),
        "size": os.path.getsize(destination),
    }
    size = _mib(written["size"])
    line = f"{destination}: {written['arrays']} arrays, {size}, from {checkpoint.path}"
    return _print_json(written) if as_json else print(printable(line))


def _where(as_json):
    """Show the cache and the environment variables that configure it."""
    files = store.cached()
    size = sum(file.size for file in files)
    cache = str(store.cache_dir())
    environment = {n: os.environ[n] for n in _ENVIRONMENT if n in os.environ}
    if as_json:
        summary = {"cache": cache, "files": len(files), "size": size}
        return _print_json(summary | {"environment": environment})
    rows = [("cache", cache), ("files", str(len(files))), ("size", _mib(size))]
    rows += [(name, environment.get(name, "not set")) for name in _ENVIRONMENT]
    return _print_table(rows)


def _mib(size, digits=1):
    if size >= 10_000 * 2**20:
        return f"{size / 2**30:,.1f} GiB"
    return f"{size / 2**20:,.{digits}f} MiB"


def _size(card, digits=1):
    """Returns the size of a card's file, with `~` where it follows from parameters."""
    if card.file_size is not None:
        return _mib(card.file_size, digits)
    return f"~{_mib(4 * card.parameters, digits)}"


def _facts(card, file):
    """Yields pairs of a fact's name and its text."""
    of_hub = isinstance(card, zoo.HubModel)
    yield "handle", card.handle
    if of_hub:
        whose = "timm's " if card.repository.startswith("timm/") else ""
        yield "architecture", f"{whose}{card.architecture}"
    else:
        sizes = _sizes(card)
        if sizes.get("resnet_stages") is None:
            sizes = {name: sizes[name] for name in sizes if "resnet" not in name}
        yield "variant", card.variant or "one of its own"
        yield "architecture", ", ".join(f"{name} {sizes[name]}" for name in sizes)
    yield "parameters", f"{card.parameters:,}"
    yield "image size", "{} x {}".format(*_sides(card))
    yield "classes", str(card.classes or "no head")
    facts = {zoo.ModelCard: _released, zoo.HubModel: _of_hub}
    yield from facts.get(type(card), _published)(card)
    yield "URL", card.url
    yield "size", _size(card)
    yield "here", str(file.path) if file else "no"
    yield "licence", card.terms if of_hub else card.licence


def _of_hub(card):
    if card.added_to:
        yield "differences to", f"{card.added_to}, which is gated"
    yield "input range", "-1 to 1, RGB"
    if card.citation is not None:
        yield "paper", f"{card.citation.title}, {card.citation.url}"
    yield from _accuracies(card)


def _accuracies(card):
    for data_set, metric, value, image_size, source in card.accuracies:
        at = f" at {image_size}" if image_size else ""
        yield data_set, f"{value:g}% {metric}{at} ({source})"


def _released(card):
    yield "pooling", card.pooling
    yield "input range", "{:g} to {:g}, RGB".format(*card.input_range)
    yield "head", "usable" if card.usable_head else "all zeros"
    yield "pre_logits", str(card.representation_size or "none")
    yield "trained on", ", then ".join(card.training_data)
    yield "paper", f"{card.citation.title}, {card.citation.url}"
    yield "notes", card.notes or "none"
    yield from _accuracies(card)
    for field, reason in card.inferred:
        yield "inferred", f"{field}, {reason}"


def _published(card):
    shown = ", ".join(card.class_names[:10])
    yield "class names", shown + (", ..." if card.classes > 10 else "")
    yield "input range", "-1 to 1" + (", RGB" if card.channels == 3 else "")
    yield "trained on", card.data_set
    yield "started from", card.base or "random weights"
    for name, value in card.metrics.items():
        yield card.data_set, f"{value:.4g} {name}"


def _document(card, file):
    """Returns all of a card as plain data for JSON."""
    document = dataclasses.asdict(card)
    names = ["handle", "parameters", "url", "top1"]
    if isinstance(card, zoo.ModelCard):
        names += ["input_range", "file", "pooling", "top1_source"]
        document |= {
            "semantics": card.semantics.computed,
            "inferred": {note.field: note.reason for note in card.inferred},
        }
    if not isinstance(card, zoo.PublishedModel):
        paper = card.citation
        document |= {
            "citation": paper and {**paper._asdict(), "url": paper.url},
            "accuracies": [accuracy._asdict() for accuracy in card.accuracies],
        }
    document |= {name: getattr(card, name) for name in names}
    cached = str(file.path) if file else None
    architecture = card.architecture if isinstance(card, zoo.HubModel) else _sizes(card)
    return document | {"architecture": architecture, "cached": cached}


def _sides(card):
    if isinstance(card, zoo.PublishedModel):
        return card.image_size
    return card.image_size, card.image_size


def _sizes(card):
    if isinstance(card, zoo.PublishedModel):
        return dict(card.architecture)
    return card.architecture.sizes


def _complain(problem):
    """Prints a problem in one line on the error stream."""
    command = typed("zoo")
    spelled = {"num_heads": "--num-heads", "zoo.list_models()": f"{command} list"}
    told = as_flags(str(problem), spelled)
    text = " ".join([f"{command}:", *told.split()])
    print(printable(text), file=sys.stderr)


def _local_files(of_cards):
    """Returns for each card the file on this machine, or None."""
    cached = {file.url: file for file in store.cached()}
    # Models of a folder are used where they are.
    for card in (card for card in of_cards if os.path.isfile(card.url)):
        file = (pathlib.Path(card.url), card.url, card.file_size, card.sha256)
        cached.setdefault(card.url, store.CachedFile(*file))
    for card in (card for card in of_cards if isinstance(card, zoo.HubModel)):
        if (folder := hub.cached(card.url)) is not None:
            cached[card.url] = store.CachedFile(folder, card.url, None, None)
    return [cached.get(card.url) for card in of_cards]


def _handle(url):
    """Returns the handle of a downloaded file, else its name."""
    for card in cards.CARDS.values():
        if card.url == url:
            return card.handle
    folder, _, name = url.rpartition("/")
    if name in registry.WEIGHTS:
        return folder.rpartition("/")[2]
    stem = name.removesuffix(".npz")
    return f"augreg/{stem}" if augreg.is_file_name(stem) else name


def _check(file):
    error = None
    try:
        zoo.fetch(file.path, sha256=file.sha256)
    except zoo.StoreError as problem:
        error = str(problem)
    document = {"handle": _handle(file.url), **dataclasses.asdict(file)}
    return document | {"path": str(file.path), "ok": error is None, "error": error}


def _print_json(document):
    print(json.dumps(document, indent=2))


def _print_table(rows, columns=(), caption=None):
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # Narrow, so that the longest handle fits in 80 columns.
    narrow = {"show_edge": False, "pad_edge": False, "padding": 0}
    table = Table(box=box.SIMPLE_HEAD, show_header=bool(columns), **narrow)
    table.caption, table.caption_justify = caption, "left"
    for column in columns or ("", ""):
        justify = "right" if column in _NUMBERS else "left"
        table.add_column(column, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


class _Parser(argparse.ArgumentParser):
    """A parser whose help begins with an example, and that asks for what is meant."""

    def __init__(self, *args, example, **kwargs):
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help(self) -> str:
        return f"$ {typed('zoo')} {self.example}\n\n{super().format_help()}"

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        choices = re.findall(r"[\w-]+", wrong[2]) if wrong else ()
        if wrong and (near := difflib.get_close_matches(wrong[1], choices, n=1)):
            message += f": did you mean {near[0]}?"
        super().error(printable(message))


def _parser():
    parser = _Parser(
        prog=typed("zoo"),
        example="list '*augreg*'",
        description="Released Vision Transformers: the catalogue and its files.",
        epilog="Exit codes: 0 success, 1 failure, 2 wrong usage.",
    )
    parsers = parser.add_subparsers(required=True, metavar="command")

    def add(run, example):
        # Python -OO leaves out docstrings.
        name = run.__name__.lstrip("_")
        summary = (run.__doc__ or name).rstrip(".")
        summary = summary[0].lower() + summary[1:]
        example = f"{name} {example}".strip()
        command = parsers.add_parser(name, help=summary, example=example)
        command.set_defaults(run=run)
        help = "print one JSON document"
        command.add_argument("--json", dest="as_json", action="store_true", help=help)
        return command.add_argument

    argument = add(_list, "'*augreg*'")
    help = "shell pattern of handles; 'augreg/*' lists every AugReg file"
    argument("pattern", nargs="?", default="*", help=help)
    argument = add(_info, "vit-b16/imagenet21k")
    argument("handle", help="of a model, or the name of an AugReg file")
    argument = add(_download, "vit-b16/imagenet21k vit-ti16/augreg-imagenet21k")
    argument("handles", nargs="+", metavar="handle", help="of a model")
    argument = add(_verify, "vit-b16/imagenet21k")
    help = "of a downloaded model; by default all files in the cache"
    argument("handles", nargs="*", metavar="handle", help=help)
    argument = add(_convert, "vit-b16/imagenet21k vit-b16.safetensors")
    argument("source", help="a file, a URL or a handle")
    argument("destination", help="the file to write; its extension is the format")
    help = "naming scheme of the arrays, by default %(default)s"
    argument("--naming", choices=NAMINGS, default=NAMINGS[0], help=help)
    help = "attention heads of the source, if its file does not say"
    argument("--num-heads", type=int, help=help)
    add(_where, "")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs one command."""
    arguments = vars(_parser().parse_args(argv))
    run = arguments.pop("run")
    try:
        with warnings.catch_warnings():
            # Without the line of code that Python adds.
            warnings.showwarning = lambda text, *_, **__: _complain(f"warning: {text}")
            return run(**arguments) or 0
    except BrokenPipeError:
        # Nothing more can be flushed at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (zoo.CatalogError, zoo.CheckpointError, OSError) as error:
        _complain(error)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
