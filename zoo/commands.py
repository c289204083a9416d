"""What `python -m zoo` does: one function a command, its arguments those of the line.

Each returns the exit code and prints a table, or with `as_json` one JSON document.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys

import zoo
from zoo import augreg, cards, store

# Where output is not read on a terminal nothing is folded.
_PIPE_WIDTH = 1000
_NUMBERS = {"size", "image", "classes", "top-1"}
_ENVIRONMENT = (
    "KERAS_VIT_CACHE",
    "XDG_CACHE_HOME",
    "KERAS_VIT_OFFLINE",
    "KERAS_VIT_MIRROR",
)


def run_list(pattern: str, as_json: bool) -> int:
    """Lists the handles that match a shell pattern."""
    found = [zoo.get(handle) for handle in zoo.list_models(pattern)]
    if not found:
        raise zoo.CatalogError(
            f"No handle matches {pattern!r}: python -m zoo list gives every one."
        )
    cached = _cached()
    if as_json:
        return _print_json([_document(card, cached) for card in found])
    table = _table("handle", "size", "image", "classes", "top-1", "here")
    for card in found:
        table.add_row(
            card.handle,
            _card_size(card, digits=0),
            str(card.image_size),
            str(card.classes),
            "" if card.top1 is None else f"{card.top1:.2f}",
            "yes" if card.url in cached else "",
        )
    table.caption = "top-1: ImageNet, percent, as published. ~: computed. here: cached."
    return _print(table)


def run_info(handle: str, as_json: bool) -> int:
    """Shows the card of a handle."""
    card = zoo.get(handle)
    cached = _cached()
    if as_json:
        return _print_json(_document(card, cached))
    sizes = dataclasses.asdict(card.architecture)
    if card.architecture.resnet_stages is None:
        del sizes["resnet_stages"], sizes["resnet_width"]
    here = cached.get(card.url)
    facts = {
        "handle": card.handle,
        "variant": card.variant,
        "architecture": ", ".join(f"{name} {value}" for name, value in sizes.items()),
        "parameters": f"{card.parameters:,}",
        "pooling": card.pooling,
        "image size": f"{card.image_size} x {card.image_size}",
        "input range": "{:g} to {:g}, RGB".format(*card.input_range),
        "classes": str(card.classes),
        "head": "usable" if card.usable_head else "all zeros",
        "pre_logits": str(card.representation_size or "none"),
        "trained on": ", then ".join(card.training_data),
        "URL": card.url,
        "size": _card_size(card),
        "cached": str(here.path) if here else "no",
        "paper": f"{card.citation.title}, {card.citation.url}",
        "licence": card.licence,
        "notes": card.notes or "none",
    }
    table = _table()
    for name, fact in facts.items():
        table.add_row(name, fact)
    for accuracy in card.accuracies:
        at = f" at {accuracy.image_size}" if accuracy.image_size else ""
        table.add_row(
            accuracy.data_set,
            f"{accuracy.value:g}% {accuracy.metric}{at} ({accuracy.source})",
        )
    for note in card.inferred:
        table.add_row("inferred", f"{note.field}, {note.reason}")
    return _print(table)


def run_download(handles: list[str], as_json: bool) -> int:
    """Downloads models and prints their paths."""
    done = []
    failed = False
    for handle in handles:
        try:
            card = zoo.get(handle)
            path = zoo.fetch(card.url, file_size=card.file_size, sha256=card.sha256)
        except (zoo.CatalogError, OSError) as error:
            complain(error)
            failed = True
            continue
        done.append({"handle": card.handle, "path": str(path)})
        if not as_json:
            print(path, flush=True)
    if as_json:
        _print_json(done)
    return int(failed)


def run_verify(handles: list[str], as_json: bool) -> int:
    """Checks downloaded files, all of them if no handle is given."""
    cached = _cached()
    files = [_downloaded(handle, cached) for handle in handles] or cached.values()
    checks = [_check(file) for file in files]
    bad = [check for check in checks if not check["ok"]]
    if as_json:
        _print_json(checks)
    else:
        table = _table("handle", "size", "state", "path")
        for check in checks:
            state = "ok" if check["ok"] else "bad"
            table.add_row(check["handle"], _mib(check["size"]), state, check["path"])
        _print(table)
    for check in bad:
        complain(check["error"])
    return int(bool(bad))


def run_convert(
    source: str, destination: str, naming: str, num_heads: int | None, as_json: bool
) -> int:
    """Writes a checkpoint in the format of the destination's extension."""
    folder = pathlib.Path(destination).parent
    if not folder.is_dir():
        raise zoo.StoreError(f"There is no folder {folder}: make it first.")
    checkpoint = zoo.read(_source(source), num_heads=num_heads)
    zoo.write(destination, checkpoint, naming=naming)
    written = {
        "source": checkpoint.path,
        "destination": destination,
        "naming": naming,
        "arrays": len(checkpoint.arrays),
        "size": os.path.getsize(destination),
    }
    if as_json:
        return _print_json(written)
    print(
        f"{destination}: {written['arrays']} arrays, {_mib(written['size'])}, from "
        f"{written['source']}"
    )
    return 0


def run_where(as_json: bool) -> int:
    """Shows the cache folder, what is in it and what decides it."""
    files = store.cached()
    found = {
        "cache": str(store.cache_dir()),
        "files": len(files),
        "size": sum(file.size for file in files),
        "environment": {
            name: os.environ[name] for name in _ENVIRONMENT if name in os.environ
        },
    }
    if as_json:
        return _print_json(found)
    table = _table()
    table.add_row("cache", found["cache"])
    table.add_row("files", str(found["files"]))
    table.add_row("size", _mib(found["size"]))
    for name in _ENVIRONMENT:
        table.add_row(name, found["environment"].get(name, "not set"))
    return _print(table)


def complain(problem) -> None:
    """Prints a problem in one line on the error stream."""
    print(" ".join(["python -m zoo:", *str(problem).split()]), file=sys.stderr)


def _cached():
    """Returns the files in the cache by URL."""
    return {file.url: file for file in store.cached()}


def _handle(url):
    """Returns what a cached file is called in the catalogue, else its own name."""
    for card in cards.CARDS.values():
        if card.url == url:
            return card.handle
    name = url.rpartition("/")[2]
    stem = name.removesuffix(".npz")
    return f"augreg/{stem}" if augreg.is_file_name(stem) else name


def _downloaded(handle, cached):
    card = zoo.get(handle)
    if card.url not in cached:
        raise zoo.StoreError(
            f"{handle} is not in the cache: python -m zoo download {handle}"
        )
    return cached[card.url]


def _check(file):
    error = None
    try:
        zoo.verify(file.path)
    except zoo.StoreError as problem:
        error = str(problem)
    return {
        "handle": _handle(file.url),
        "url": file.url,
        "path": str(file.path),
        "size": file.size,
        "sha256": file.sha256,
        "ok": error is None,
        "error": error,
    }


def _source(source):
    """Returns the local file that a path, a URL or a handle names."""
    if os.path.exists(source):
        return source
    named = pathlib.Path(source).suffix and not augreg.is_file_name(source)
    if named or "://" in source:
        return zoo.fetch(source)
    card = zoo.get(source)
    return zoo.fetch(card.url, file_size=card.file_size, sha256=card.sha256)


def _document(card, cached):
    """Returns all of a card as JSON has it."""
    here = cached.get(card.url)
    return {
        **{field.name: getattr(card, field.name) for field in dataclasses.fields(card)},
        "semantics": dataclasses.asdict(card.semantics),
        "input_range": card.input_range,
        "file": card.file,
        "architecture": dataclasses.asdict(card.architecture),
        "parameters": card.parameters,
        "pooling": card.pooling,
        "top1": card.top1,
        "top1_source": card.top1_source,
        "citation": {**card.citation._asdict(), "url": card.citation.url},
        "accuracies": [accuracy._asdict() for accuracy in card.accuracies],
        "inferred": {note.field: note.reason for note in card.inferred},
        "cached": str(here.path) if here else None,
    }


def _mib(size, digits=1):
    return f"{size / 2**20:,.{digits}f} MiB"


def _card_size(card, digits=1):
    """Returns the listed size, or what the parameters take."""
    if card.file_size is not None:
        return _mib(card.file_size, digits)
    return f"~{_mib(4 * card.parameters, digits)}"


def _print_json(document):
    print(json.dumps(document, indent=2))
    return 0


def _table(*columns):
    try:
        from rich import box, table
    except ImportError as error:
        raise zoo.StoreError(
            "Tables are printed with rich, which is not installed: pip install rich, "
            "or pass --json."
        ) from error
    # As narrow as can be: the longest handle still fits in 80 columns.
    made = table.Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
        show_header=bool(columns),
        caption_justify="left",
    )
    for column in columns or ("", ""):
        justify = "right" if column in _NUMBERS else "left"
        made.add_column(column, justify=justify, overflow="fold")
    return made


def _print(table):
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)
    return 0
