"""What a finished run keeps of its test, by which other answers are judged."""

import dataclasses
import json

import numpy as np
from small_models import shared

from train.data import sources
from train.scoring import held_out, kept_test
from train.scoring.ranked import ranked


def test_a_run_keeps_its_answers_and_features_of_its_training(short_run):
    kept = held_out.read(short_run / "held_out.npz")
    report = json.loads((short_run / "report.json").read_text())
    assert len(kept.confidence) == report["test_examples"]
    assert np.isclose(kept.is_correct.mean(), report["test_accuracy"])
    assert kept.known.shape[1] == 16 and len(kept.distances)
    lengths = np.linalg.norm(kept.known.astype("float32"), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-2)


def test_of_very_many_records_none_are_chosen(tmp_path, monkeypatch):
    source = sources.load("digits")
    chances = np.full((source.test.num_examples, 10), 0.1)
    answered = ranked(source.test.labels(), chances)
    monkeypatch.setattr(kept_test, "_MOST_READ", 100)
    streamed = dataclasses.replace(source.train, arrays=None)
    source = dataclasses.replace(source, train=streamed)
    features = kept_test.features_by(shared(), source)
    kept_test.keep(
        tmp_path / "held_out.npz", answered, source.train, source.test, features
    )
    kept = held_out.read(tmp_path / "held_out.npz")
    assert not len(kept.distances) and len(kept.confidence) == 360
