"""Answers that are doubted: marks in every output, and models that cannot say so."""

import csv
import json
import os
import pathlib

import numpy as np
import pytest
from html_page import Page
from photo_folder import by_mean, paths, prepared, text_of

from train.common.errors import RunError
from train.data import correction_files
from train.models.finding import FoundModel
from train.models.run_directory import RunDirectory
from train.predict import labelling, photo_predictor
from train.predict.prediction import predict
from train.scoring import held_out
from train.scoring.held_out import HeldOut
from zoo.network.head import Answers


@pytest.fixture
def judged(folder, stub, monkeypatch):
    """Puts the stub into a run whose test was right from the median photo on.

    The third photo is unlike all that are known. Returns the mark of each photo.
    """
    stub()
    probabilities, features = by_mean(prepared(8, 8))
    confidence = probabilities.max(axis=1)
    limit = np.median(confidence)
    known = held_out.unit(np.repeat(np.delete(features, 2, axis=0), 3, axis=0))
    tested = np.repeat(np.sort(confidence) - 1e-4, 50).astype("float32")
    apart = held_out.distances_to(known, features)[2]
    kept = HeldOut(tested, tested > limit - 1e-3, known, np.array([0, apart / 2]))
    os.mkdir("run")
    kept.write(RunDirectory("run").held_out)
    place = FoundModel("run", RunDirectory("run").model, RunDirectory("run"))
    monkeypatch.setattr(photo_predictor, "find", lambda *_, **__: place)
    marks = np.where(confidence < limit, "unsure", "")
    marks[2] = "unlike"
    return marks.tolist()


def test_marks_are_in_every_output(judged):
    answers, found = [], {}
    for name in ("out.csv", "out.jsonl"):
        found = predict(
            "run",
            ["photos"],
            unsure=0.996,
            out=name,
            **({"sort_into": "sorted", "gallery": "page.html"} if not found else {}),
            answer=answers.append,
        )
    assert [answer.mark for answer in answers[:10]] == judged
    assert found.marks == {"unsure": judged.count("unsure"), "unlike": 1}
    note = found.notes[-1]
    assert note.startswith("answers below ") and " were right; unlike are " in note
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["mark"] for row in rows] == judged
    lines = [json.loads(line) for line in text_of("out.jsonl").splitlines()]
    assert [line["mark"] for line in lines] == judged
    for path, mark, answer in zip(paths(), judged, answers, strict=False):
        folder = f"_{mark}" if mark else answer.top[0][0]
        assert os.path.exists(os.path.join("sorted", folder, os.path.basename(path)))
    titles = Page(RunDirectory(".").path / "page.html").text
    assert titles.index("Unsure") < titles.index("green")
    assert "Unlike the photos of the training" in titles


def test_files_of_answers_go_on_with_the_same_accuracy_only(judged):
    predict("run", paths(0, 1), unsure=0.996, out="out.csv")
    found = predict("run", ["photos"], unsure=0.996, out="out.csv", resume=True)
    assert (found.answered, found.earlier) == (8, 2)
    with open("out.csv", newline="") as file:
        assert [row["mark"] for row in csv.DictReader(file)] == judged
    for other in (0.8, None):
        with pytest.raises(RunError, match="other settings: unsure 0.996"):
            predict("run", ["photos"], unsure=other, out="out.csv", resume=True)


def test_a_model_without_held_out_answers_is_refused(folder, stub):
    stub()
    os.mkdir("run")
    for name in ("run/model.keras", "model.onnx"):
        open(name, "w").close()
    for model, told in (("run", "there is no run/held_out.npz"), ("model.onnx", ": p")):
        with pytest.raises(RunError, match=f"{model} has no answers.*{told}"):
            predict(model, ["photos"], unsure=0.9)


def test_an_accuracy_that_no_answers_have_is_refused(judged):
    with pytest.raises(RunError, match="500 answers to test photos has shown an accur"):
        predict("run", ["photos"], unsure=0.9999)


@pytest.mark.parametrize("name", ["image_size", "central_crop"])
def test_what_changes_answers_is_refused_beside_it(judged, name):
    with pytest.raises(RunError, match=f"--{name} changes the answers"):
        predict("run", ["photos"], unsure=0.9, **{name: 8})


def test_photos_to_label_are_chosen_among_those_that_are_answered(folder, stub):
    stub()
    found = predict("stub", ["photos"], ask=3, gallery="page.html")
    files = [answer.file for answer in found.asked]
    assert len({*files}) == 3 and {*files} <= {*paths()}
    assert "press Label on those in page.html that are of a class" in found.notes[-1]
    shown = Page(RunDirectory(".").path / "page.html").values("data-path")
    assert sorted(shown) == sorted(map(os.path.abspath, files))
    probabilities, features = by_mean(prepared(8, 8))
    errors = probabilities - np.eye(3)[probabilities.argmax(axis=1)]
    lengths = np.linalg.norm(errors, axis=1) * np.linalg.norm(features, axis=1)
    assert files[0] == paths()[lengths.argmax()]
    with pytest.raises(RunError, match="--ask .* leave one of them out"):
        predict("stub", ["photos"], ask=3, out="out.csv", resume=True)
    with pytest.raises(RunError, match="--out is a file NAME.csv, got out.jsonl"):
        predict("stub", ["photos"], ask=3, out="out.jsonl")


def test_labels_of_a_list_of_photos_are_read(folder, stub):
    stub()
    predict("stub", ["photos"], ask=3, out="new/ask.csv")
    assert pathlib.Path("new/ask.csv").exists()
    found = predict("stub", ["photos"], ask=3, out="ask.csv")
    assert "fill in the column label of ask.csv" in found.notes[-1]
    file = pathlib.Path("ask.csv")
    header, first, *others = file.read_text().splitlines()
    assert header == "path,label,guess,probability" and len(others) == 2
    [(guess, probability), *_] = found.asked[0].top
    path = os.path.abspath(found.asked[0].file)
    assert first == f"{path},,{guess},{probability}"
    file.write_text("\n".join([header, first.replace(",,", ",blue,"), *others]))
    assert correction_files.labels(file) == {path: "blue"}
    # A list that a user has filled in is not replaced.
    with pytest.raises(RunError, match="ask.csv exists: pass another --out"):
        predict("stub", ["photos"], ask=3, out="ask.csv")


def test_the_command_that_takes_labels_is_that_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("run").mkdir()
    command = "keras-vit finetune 'my photos/' --minutes=5 --seeds=2 --run_dir=run"
    pathlib.Path("run/report.json").write_text(json.dumps({"command": command}))
    for model in ("run", "run/model.keras"):
        assert labelling.command(model, "ask.csv") == (
            "keras-vit finetune 'my photos/' --minutes=5 --relabel=ask.csv "
            "--run_dir=run-labelled"
        )
    assert labelling.command("vit-ti16/x", "ask.csv").endswith(
        "finetune photos/ --relabel=ask.csv"
    )
    pathlib.Path("run/report.json").write_text('{"command": "\'"}')
    assert labelling.command("run", "a").endswith("finetune photos/ --relabel=a")
    assert labelling.advice("run").endswith("--out=ask.csv for a list to fill in")
    told = labelling.advice("run", gallery="ask.html")
    assert "download relabel.csv; then" in told and "--relabel=relabel.csv" in told


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_models_of_other_answers_cannot_be_asked(folder, stub, problem_type):
    stub(answers=Answers(("red", "green", "blue"), problem_type))
    with pytest.raises(RunError, match="--ask needs one class of several per photo"):
        predict("stub", ["photos"], ask=3)
