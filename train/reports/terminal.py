"""A result and its verdict in the lines that a terminal shows."""

from collections.abc import Iterator

from zoo.common.safe_text import printable


def accuracies(results: dict, split: str, title: str, images: str) -> Iterator[str]:
    """Yields the accuracies with their intervals, the one that leads first.

    `results` are those of `train.reports.report.write_report`; `title` is what the
    accuracy is called, and `images` which images it is of.
    """
    if results["leading_accuracy"] == "balanced_accuracy":
        yield f"balanced {title} {_interval(results, f'{split}_balanced_accuracy')}"
    yield f"{title} {_interval(results, f'{split}_accuracy')} on {images}"


def _interval(results, name):
    value, low, high = (results[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.2%} ({low:.2%} to {high:.2%})"


def verdict(results: dict) -> Iterator[str]:
    """Yields the sentences that follow the accuracies, and what to try next."""
    _, *sentences = results["verdict"]
    yield from map(printable, sentences)
    for suggestion in results["try_next"]:
        yield printable(f"try    {suggestion['command']}", most=1000)
        yield printable(f"       expected: {suggestion['expected']}", most=1000)


def of_sentences(results: dict) -> str:
    """Returns the lines of a result of `train.reports.pages.write`, with its paths."""
    names = {"report": "page", "model": "model"}
    paths = {name: results[key] for name, key in names.items() if key in results}
    width = max(map(len, paths))
    lines = [*results["verdict"], *results["notes"]]
    lines += [f"{name:{width}} {path}" for name, path in paths.items()]
    return printable("\n".join(lines), lines=True)
