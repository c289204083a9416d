"""Results as a table on the terminal and as JSON."""

import json
import pathlib
import sys

from train.common.files import whole_file

# Header: what it shows of a contender that ran.
COLUMNS = {
    "ms p50": lambda record: number(record["p50"] * 1e3),
    "p95": lambda record: number(record["p95"] * 1e3),
    "best": lambda record: number(record["best"] * 1e3),
    "images/s": lambda record: number(record["items_per_second"]),
    "CPU s": lambda record: number(record["cpu_p50"]),
    "ratio": lambda record: f"{record['ratio']:.2f}",
    "share of limit": lambda record: _percent(record["share_of_limit"]),
    "peak MB": lambda record: megabytes(record["peak_bytes"]),
    "setup s": lambda record: number(record["setup_seconds"]),
    "import MB": lambda record: megabytes(record["import_bytes"]),
}


def table(result):
    """Returns a result's table."""
    header = list(COLUMNS)
    if result["reference"] is not None:
        header[header.index("ratio")] += f" to {result['reference']}"
    rows = []
    for record in result["contenders"]:
        if record["error"] is not None:
            cells = ["failed", *[""] * (len(COLUMNS) - 1)]
        else:
            cells = [show(record) for show in COLUMNS.values()]
        rows.append([record["name"], *cells])
    return ["contender", *header], rows


def failures(records):
    """Returns why contenders failed, a line each."""
    return [
        f"{record['name']} failed: {record['error']}"
        for record in records
        if record["error"] is not None
    ]


def notes(result):
    """Returns what to know beside the table, as lines."""
    lines = failures(result["contenders"])
    calibration = result["calibration"]
    if "error" in calibration:
        lines.append(f"Nothing is known of the machine's noise: {calibration['error']}")
    elif calibration:
        lines.append(
            f"Matrix product: {calibration['operations_per_second'] / 1e9:.0f} "
            f"GFLOP/s, its worst round {calibration['variation']:.0%} below its best."
        )
    if result["void"]:
        lines.append(
            "This run is VOID: the machine was too noisy. Repeat it on a quiet machine."
        )
    return lines


def print_table(title, header, rows):
    """Prints a table, names to the left, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # Rich takes a pipe for a terminal of 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, name in enumerate(header):
        grid.add_column(name, justify="right" if index else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console.print(grid)


def print_markdown(header, rows, words):
    """Prints a Markdown table of rows of str; columns called as in `words` are left."""
    rules = ["---" if name in words else "--:" for name in header]
    print(f"| {' | '.join(header)} |")
    print(f"|{'|'.join(rules)}|")
    for cells in rows:
        print(f"| {' | '.join(cells)} |")


def write_json(path, result):
    """Writes a result whole: there is never a part of a file at `path`."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(result, indent=1), encoding="utf-8")


def number(value):
    """Returns a number as text: three digits, or all before the point."""
    return f"{value:#.3g}" if value < 100 else f"{value:,.0f}"


def _percent(value):
    return "" if value is None else f"{value:.0%}"


def megabytes(value):
    """Returns bytes as text in megabytes, "" for None."""
    return "" if value is None else f"{value / 1e6:,.0f}"
