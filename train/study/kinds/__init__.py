"""The studies: one module each, found by its name.

A module has `TITLE`, of the page; `FROM_SCRATCH`, whether its runs start from random
weights; and three functions:

- `measure(recipe, options, settings)` makes the runs. It returns `runs.Runs` and a dict
  for `study.json` with `rows`. `settings` are those of `train.study.studies.run`.
- `tables(found)` yields the tables and paragraphs of `study.md`; `found` is that dict.
- `draw(figure, found)` plots into a matplotlib figure.
"""

import importlib
import pkgutil


def names():
    """Returns the names of the studies, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def named(name):
    """Returns the module of a study."""
    return importlib.import_module(f"{__name__}.{name}")
