"""Figures of reports: kept, and drawn into their files where a test asks for it."""

import pathlib

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from train.reports import figures as drawing


@pytest.fixture
def drawn():
    """Asks for figures in their files, which else stay empty."""


@pytest.fixture(autouse=True)
def figures(request, monkeypatch):
    """The figures that were made."""
    kept, save = [], drawing.save

    def keep(figure, path):
        if "drawn" in request.fixturenames:
            save(figure, path)
        pathlib.Path(path).touch()
        FigureCanvasAgg(figure)
        kept.append(figure)

    monkeypatch.setattr(drawing, "save", keep)
    return kept
