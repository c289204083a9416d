"""Prints results of earlier runs as tables in Markdown.

python -m benchmarks.tables benchmarks/results/inference-ViT-B_16-b8.json ...
"""

import json
import pathlib
import sys

from benchmarks import report


def main(paths):
    """Prints one table a file.

    Args:
        paths: list of str.
    """
    if "--help" in paths:
        print(__doc__)
        return
    if not paths:
        sys.exit("error: name the JSON file of a benchmark, or several; see --help.")
    for path in paths:
        try:
            result = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            header, rows = result["table"]
            lines = [f"`{result['command']}`", report.markdown(header, rows)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"error: {path} is not the JSON of a benchmark: {error}")
        print("\n\n".join([*lines, *result["notes"]]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
