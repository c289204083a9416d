"""What `keras-vit zoo` does: one function a command, its arguments those of the line.

Each returns the exit code and prints a table, or with `as_json` one JSON document.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import zoo
from keras_vit_start import typed
from zoo import store
from zoo.catalog import augreg, cards, facts, registry
from zoo.catalog.locate import fetch_card
from zoo.text import printable

# Where output is not read on a terminal nothing is folded.
_PIPE_WIDTH = 1000
_NUMBERS = {"size", "image", "classes", "top-1"}
_ENVIRONMENT = (
    "KERAS_VIT_CACHE",
    "XDG_CACHE_HOME",
    "KERAS_VIT_OFFLINE",
    "KERAS_VIT_MIRROR",
    registry.VARIABLE,
)


def run_list(pattern: str, as_json: bool) -> int:
    """Lists the handles that match a shell pattern."""
    found = [zoo.get(handle) for handle in zoo.list_models(pattern)]
    if not found:
        raise zoo.CatalogError(
            f"No handle matches {pattern!r}: {typed('zoo')} list gives every one."
        )
    cached = _cached()
    if as_json:
        return _print_json(
            [facts.document(card, _here(card, cached)) for card in found]
        )
    table = _table("handle", "size", "image", "classes", "top-1", "here")
    for card in found:
        _add_row(
            table,
            card.handle,
            facts.size(card, digits=0),
            facts.image_size(card),
            str(card.classes),
            "" if card.top1 is None else f"{card.top1:.2f}",
            "yes" if _here(card, cached) else "",
        )
    table.caption = (
        "top-1: percent, as published: ImageNet, or a published model's own test split."
        " ~: computed. here: on this machine."
    )
    return _print(table)


def run_info(handle: str, as_json: bool) -> int:
    """Shows the card of a handle."""
    card = zoo.get(handle)
    cached = _cached()
    if as_json:
        return _print_json(facts.document(card, _here(card, cached)))
    table = _table()
    for name, fact in facts.lines(card, _here(card, cached)):
        _add_row(table, name, fact)
    return _print(table)


def run_download(handles: list[str], as_json: bool) -> int:
    """Downloads models and prints their paths."""
    done = []
    failed = False
    for handle in handles:
        try:
            card = zoo.get(handle)
            path = _whole(card)
        except (zoo.CatalogError, OSError) as error:
            complain(error)
            failed = True
            continue
        done.append({"handle": card.handle, "path": str(path)})
        if not as_json:
            print(printable(str(path)), flush=True)
    if as_json:
        _print_json(done)
    return int(failed)


def _whole(card):
    """Returns the path of a file every byte of which is as it was downloaded first."""
    path = fetch_card(card)
    if any(file.path == path for file in store.cached()):
        try:
            zoo.verify(path)
        except zoo.StoreError as error:
            complain(f"{error} Downloading it again.")
            path.unlink()
            path = fetch_card(card)
    return path


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
            _add_row(
                table, check["handle"], facts.mib(check["size"]), state, check["path"]
            )
        _print(table)
    for check in bad:
        complain(check["error"])
    return int(bool(bad))


def run_convert(
    source: str, destination: str, naming: str, num_heads: int | None, as_json: bool
) -> int:
    """Writes a checkpoint in the format of the destination's extension."""
    checkpoint = zoo.read(zoo.locate(source), num_heads=num_heads)
    destination = os.path.expanduser(destination)
    pathlib.Path(destination).parent.mkdir(parents=True, exist_ok=True)
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
        printable(
            f"{destination}: {written['arrays']} arrays, "
            f"{facts.mib(written['size'])}, from {written['source']}"
        )
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
    _add_row(table, "cache", found["cache"])
    _add_row(table, "files", str(found["files"]))
    _add_row(table, "size", facts.mib(found["size"]))
    for name in _ENVIRONMENT:
        _add_row(table, name, found["environment"].get(name, "not set"))
    return _print(table)


def complain(problem) -> None:
    """Prints a problem in one line on the error stream."""
    text = " ".join([f"{typed('zoo')}:", *str(problem).split()])
    print(printable(text), file=sys.stderr)


def _cached():
    """Returns the files in the cache by URL."""
    return {file.url: file for file in store.cached()}


def _here(card, cached):
    """Returns the local path of a card's file, None where it was not downloaded."""
    if card.url in cached:
        return str(cached[card.url].path)
    return card.url if os.path.isfile(card.url) else None


def _handle(url):
    """Returns what a file is called in the catalogue, else its own name."""
    for card in cards.CARDS.values():
        if card.url == url:
            return card.handle
    folder, _, name = url.rpartition("/")
    if name in registry.WEIGHTS:
        return folder.rpartition("/")[2]
    stem = name.removesuffix(".npz")
    return f"augreg/{stem}" if augreg.is_file_name(stem) else name


def _downloaded(handle, cached):
    card = zoo.get(handle)
    if card.url in cached:
        return cached[card.url]
    if os.path.isfile(card.url):
        path = pathlib.Path(card.url)
        return store.CachedFile(path, card.url, card.file_size, card.sha256)
    raise zoo.StoreError(
        f"{handle} is not in the cache: {typed('zoo')} download {handle}"
    )


def _check(file):
    error = None
    try:
        zoo.fetch(file.path, sha256=file.sha256)
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


def _add_row(table, *cells):
    table.add_row(*map(printable, cells))


def _print(table):
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)
    return 0
