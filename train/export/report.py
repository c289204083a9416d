"""The report of an export: `export.md`, and the table that the command prints.

`results` is what `train.export.run.export` returns, a row one of its "exports".
"""

import collections
import pathlib
from collections.abc import Sequence

from train.common import markdown
from train.data.transforms import served_files
from train.export.formats import FORMATS
from train.export.program import BATCH

_TEMPLATE = pathlib.Path(__file__).parent / "templates" / "export.md.jinja"


def table(results: dict) -> str:
    """Returns the exports as a Markdown table: the model first, refused ones last."""
    is_top_1 = results["agreement_of"] == "top-1"
    refused = [row for row in results["refused"] if "agreement" in row]
    rows = [*results["exports"], *refused]
    columns = {
        "Export": lambda row: f"{row['name']}{' (refused)' * ('why' in row)}",
        "MB": lambda row: _short(row["bytes"] / 1e6),
        "Largest error": _error,
        "At another size": lambda row: _error(row.get("other_size")),
        "Accuracy (95% interval)": lambda row: _share(row, "accuracy"),
        "Top-1 agreement (95% interval)" if is_top_1 else "Mean cosine": lambda row: (
            agreement(results, row["agreement"], row if row is not rows[0] else None)
        ),
        "ms at batch 1": lambda row: _milliseconds(row, 1),
        f"ms at batch {BATCH}": lambda row: _milliseconds(row, BATCH),
        "Peak memory, MB": lambda row: f"{row['peak_bytes'] / 1e6:,.0f}",
    }
    if not any("other_size" in row for row in rows):
        del columns["At another size"]
    if "accuracy" not in rows[0]:
        del columns["Accuracy (95% interval)"]
    return markdown.table(
        tuple(columns), [[cell(row) for cell in columns.values()] for row in rows]
    )


def agreement(results: dict, value: float, row: dict | None = None) -> str:
    """Returns an agreement as text, with the 95% interval of an export's row."""
    if results["agreement_of"] != "top-1":
        return f"{value:.6f}"
    return f"{value:.2%}" if row is None else _share(row, "agreement")


def matrices(row: dict) -> str:
    """Returns a sentence on the precision of the matrices of a TFLite export's row."""
    kinds = row["matrices"]
    text = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    text = f"The matrices of {row['name']}: {text}"
    if row["aim"] is not None:
        kept = f"{kinds.get('float16', 0)} of {sum(kinds.values())}"
        text += f"; {kept} stay in float16 for --min_agreement={row['aim']:g}"
    return f"{text}."


def page(results: dict, class_names: Sequence[str] | None) -> str:
    """Returns the report as Markdown."""
    exports = results["exports"][1:]
    paths_by_runtime = collections.defaultdict(list)
    for row in exports:
        kind = FORMATS[row["name"]]
        paths_by_runtime[kind.runtime.name].append(kind.file)
    return markdown.render(
        _TEMPLATE,
        **results,
        batch=BATCH,
        class_names=class_names,
        served_files=served_files(results.get("bits")),
        comparison=table(results),
        files=[
            (file["path"], f"{file['bytes']:,}", file["sha256"])
            for row in exports
            for file in row["files"]
        ],
        other_sizes=[row["other_size"] for row in exports if "other_size" in row],
        matrices=[
            matrices(row) for row in exports if FORMATS[row["name"]].is_quantized
        ],
        paths_by_runtime=paths_by_runtime,
        versions=dict.fromkeys(row["version"] for row in results["exports"]),
    )


def _share(row, name):
    return f"{row[name]:.2%} ({row[f'{name}_low']:.2%} to {row[f'{name}_high']:.2%})"


def _error(row):
    if row is None:
        return ""
    if row["largest_error"] is None:
        return f"{row['not_finite']:,} not finite"
    return f"{row['largest_error']:.2g}"


def _milliseconds(row, batch):
    text = _short(1000 * row["latency"][str(batch)])
    return f"{text} (one by one)" if row["one_by_one"] and batch > 1 else text


def _short(number):
    return f"{number:,.1f}" if number >= 10 else f"{number:.2g}"
