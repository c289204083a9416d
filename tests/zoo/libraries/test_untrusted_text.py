"""Text of strangers is spelled out, and what is no text, or endless, is refused."""

import hashlib
import json
import os
import pathlib
import pickle

import pytest
from published_card import CARD

import zoo
from train.common import markdown
from train.common.errors import RunError
from zoo import __main__ as zoo_command
from zoo import store
from zoo.__main__ import main
from zoo.catalog import registry
from zoo.common import safe_text
from zoo.libraries import description
from zoo.store import transport

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
# A cleared screen, a title, a line like ours, text in reverse, half a character.
NASTY = "a\x1b[2J\x9b1m\x1b]0;b\x07\r\n\u2028ok\u202etxt.exe\ud800\0"
WRONG = [
    *(10**400, 1e999, -1, 0, True, None, NASTY, [], [[]], ["a"], {}),
    *({"a": [NASTY]}, [10**400] * 3, "a" * 10**6, list(range(10**5))),
]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERAS_VIT_REGISTRY", raising=False)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")


def is_clean(message):
    message = message.strip()
    return message.replace("\n", "").isprintable() and len(message) <= 2000


# The function and the errors


def test_what_is_spelled_out():
    assert safe_text.printable(NASTY) == (
        r"a\x1b[2J\x9b1m\x1b]0;b\x07\x0d\x0a\u2028ok\u202etxt.exe\ud800\x00"
    )
    assert safe_text.printable("a\nb\r", lines=True) == "a\nb\\x0d"
    marked = ("\u05e9\u05dc\u05d5\u05dd\u200f (1)", "\u061cعبّاد", "a\u200e")
    for fine in ("Öl", "日本語", "👩‍🌾", "می‌خواهم", "a\xa0b", "", *marked):
        assert safe_text.printable(fine) == fine
        assert safe_text.is_safe(fine)
    for character in f"{NASTY}\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069":
        assert safe_text.is_safe(character) == (
            safe_text.printable(character) == character
        )
    for size in (10, 100, 1999, 2000, 2001, 10**6):
        for character in ("a", "\0", "\U000e0041"):
            assert len(safe_text.printable(size * character)) <= 2000
    assert safe_text.printable("\U000e0041") == r"\U000e0041"
    # The remedy, which comes last, stays.
    assert safe_text.printable(10**6 * "a" + "delete it").endswith("delete it")


def test_values_are_shown_in_brief():
    for value in WRONG:
        assert is_clean(safe_text.brief(value))
        assert len(safe_text.brief(value)) <= 100


@pytest.mark.parametrize(
    "error",
    [zoo.CheckpointError, zoo.CatalogError, zoo.StoreError]
    + [transport.TransferError, RunError],
)
def test_errors_are_printable_and_short(error):
    made = error(NASTY + 5 * 10**6 * "b" + ": delete it.")
    assert is_clean(str(made))
    assert str(made).endswith(": delete it.")
    assert str(pickle.loads(pickle.dumps(made))) == str(made)


# Cards


@pytest.mark.parametrize("field", CARD)
def test_cards_of_other_kinds_are_refused(field, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    card = pathlib.Path("flowers", "model.json")
    card.parent.mkdir()
    for value in WRONG:
        card.write_text(json.dumps({**CARD, field: value}))
        code = main(["info", "./flowers"])
        out, err = capsys.readouterr()
        assert out.replace("\n", "").isprintable() and len(out) < 100_000
        assert is_clean(err)
        assert code == (0 if err == "" else 1)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"class_names": ["daisy", NASTY]}, "damaged card.*control characters"),
        ({"metrics": {NASTY: 0.5}}, "control characters"),
        ({"architecture": {NASTY: 1}}, "control characters"),
        ({"data_set": " " * 5 * 10**6}, "more than 4,000,000 bytes"),
    ],
)
def test_a_card_with_control_characters_or_without_end(changes, told, tmp_path):
    (tmp_path / "model.json").write_text(json.dumps(CARD | changes))
    with pytest.raises(zoo.CatalogError, match=told):
        registry.read(tmp_path)


def test_a_damaged_copy_of_an_index_is_named(monkeypatch):
    monkeypatch.setenv("KERAS_VIT_REGISTRY", "http://127.0.0.1:9")
    copy = store.latest_copy("http://127.0.0.1:9/registry.json")
    copy.parent.mkdir(parents=True)
    index = {"format": 1, "models": [{**CARD, "name": NASTY}]}
    for content in (json.dumps(index).encode(), bytes(100)):
        copy.write_bytes(content)
        with pytest.raises(zoo.CatalogError) as error:
            registry.models()
        assert is_clean(str(error.value))
        assert str(copy) in str(error.value)


# Names of files and folders


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
def test_names_of_files(tmp_path, capsys):
    folder = tmp_path / "a\x1b[2J\nb\u202e"
    folder.mkdir()
    source = folder / "model.npz"
    source.write_bytes((GOLDENS / "token.npz").read_bytes())
    assert main(["convert", str(source), str(folder / "b.npz")]) == 0
    assert main(["convert", str(folder / "none.npz"), str(folder / "b.npz")]) == 1
    zoo_command._complain(f"a\n{NASTY}" + "b" * 10**6)
    out, err = capsys.readouterr()
    assert is_clean(out)
    assert err.count("\n") == 2
    assert all(map(is_clean, err.split("\n")))


# Pages


def test_text_stays_in_its_cell_and_its_block():
    row = markdown.table(("a", "b"), [(NASTY, "<b>|`x`")]).splitlines()[2]
    assert row.isprintable()
    assert row.replace("\\|", "").count("|") == 3
    assert r"\<b\>\|\`x\`" in row
    block = markdown.code("ls '\n```\n# Title\n````'\x1b[2J\u202e")
    first, *_, last = block.splitlines()
    assert (first, last) == ("`````sh", "`````")
    assert "\n`````" not in block[5:-6]
    assert block.replace("\n", "").isprintable()


# The entry of ours in a header, and notes of our own


def check_refused(read, table):
    """Many are refused, in few clean words, where a value of a table is another."""
    refused = 0
    for one in ({**table, key: wrong} for key in table for wrong in WRONG):
        try:
            read(one)
        except (zoo.CheckpointError, zoo.StoreError) as error:
            assert is_clean(str(error))
            refused += 1
    assert refused > len(WRONG)


def test_entries_of_ours_of_other_kinds():
    semantics = {"activation": "gelu", "layer_norm_epsilon": 1e-6}
    semantics |= {"input_mean": [0.5] * 3}

    def read(table):
        entry = {description.METADATA_KEY: json.dumps(table)}
        found = description.from_metadata(entry, "a.safetensors")
        assert found.grid_size is None or len(found.grid_size) in (0, 2)

    said = {"semantics": semantics, "num_heads": 3, "grid_size": [4, 4]}
    check_refused(read, said)


def test_damaged_records_are_named():
    url = "http://host/a.npz"
    path = store._cached_path(url)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"abc")
    right = {"url": url, "bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    record = pathlib.Path(f"{path}.json")
    record.write_text(json.dumps(right))
    assert zoo.fetch(url) == path

    def read(table):
        record.write_text(json.dumps(table))
        zoo.fetch(url)

    check_refused(read, right)
    for text in ("{", "[" * 10**5, "\0" * 100, json.dumps(right | {"bytes": 1e999})):
        record.write_text(text)
        with pytest.raises(zoo.StoreError, match="record .* is unreadable.*delete"):
            store.cached()


@pytest.mark.parametrize("headers", [[], "a", {"etag": 7}, {"etag": []}, None, 10**400])
def test_damaged_notes_of_a_transfer_begin_anew(headers, tmp_path):
    part = transport.Part(tmp_path / "a.part", "http://host/a")
    part.path.write_bytes(b"abc")
    pathlib.Path(f"{part.path}.json").write_text(
        json.dumps({"url": part.url, "headers": headers})
    )
    assert part.headers == {}
    assert (part.length, part.validator, part.md5s) == (None, None, [])
    assert not part.is_resumable
