"""Figures of reports: left out, kept, or drawn into their files."""

import pathlib

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from train.reports import figures as drawing


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """Leaves the figures of a report empty, unless a test asks for them."""
    if not {"figures", "drawn"} & {*request.fixturenames}:
        for name in ("confusion_matrix", "learning_curve", "reliability", "mistakes"):
            monkeypatch.setattr(
                drawing, f"draw_{name}", lambda path, *settings: path.touch()
            )


@pytest.fixture
def drawn():
    """Asks for figures in their files."""


@pytest.fixture
def figures(request, monkeypatch):
    """Keeps the figures; without `drawn`, their files stay empty."""
    kept, save = [], drawing.save

    def keep(figure, path):
        save(figure, path) if "drawn" in request.fixturenames else touch(path)
        FigureCanvasAgg(figure)
        kept.append(figure)

    monkeypatch.setattr(drawing, "save", keep)
    return kept


def touch(path):
    pathlib.Path(path).touch()
