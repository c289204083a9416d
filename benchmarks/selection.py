"""Names on the command line to contenders."""

from typing import NamedTuple

from benchmarks.contest import Contender


class Choice(NamedTuple):
    """A row in a table of what can be measured.

    Args:
        label: str, what tables call it.
        job: str, "package.module:function".
        imports: names of the packages it needs.
        backend: str, the Keras backend it runs on.
    """

    label: str
    job: str
    imports: tuple[str, ...]
    backend: str = "tensorflow"


def choose(table, names, flag):
    """Returns the rows of a table that a flag names.

    Args:
        table: dict of `Choice`.
        names: list of str, or of "all" alone.
        flag: str, for the error.

    Returns:
        List of `Choice`, in the order of `names`.

    Raises:
        ValueError: there is no such row.
    """
    if names == ["all"]:
        return list(table.values())
    for name in names:
        if name not in table:
            raise ValueError(
                f"--{flag} has no {name!r}: name some of {','.join(table)}, or all."
            )
    return [table[name] for name in dict.fromkeys(names)]


def contender(choice, **fields):
    """Returns a row as a `Contender`.

    Args:
        choice: `Choice`.
        **fields: the other fields of `Contender`.
    """
    return Contender(
        name=choice.label,
        job=choice.job,
        imports=choice.imports,
        environment={"KERAS_BACKEND": choice.backend},
        **fields,
    )
