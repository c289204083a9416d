"""Ray and Beam: the same rows as one process, also where workers are killed."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest
from photo_folder import lines_of
from PIL import Image

import keras_vit_start
from train.common.errors import LibraryError, RunError
from train.predict import in_parts
from train.predict.part_work import PartWork
from train.predict.photo_predictor import PhotoPredictor

MODULES = {"ray": "ray", "beam": "apache_beam"}
# The command line of a worker has this.
WORKERS = {"ray": "ray::MapWorker", "beam": "sdk_worker_main"}
PROBABILITIES = ("label", "probability", "label_2", "probability_2")


@pytest.mark.parametrize("runner", MODULES)
def test_runners_write_the_rows_of_one_process(runner, folder, files, monkeypatch):
    pytest.importorskip(MODULES[runner])
    monkeypatch.setattr(in_parts, "_PHOTOS", 4)
    model = str(files / "model.onnx")
    go = [model, ["photos"]]
    given = {"parts": "csv", "show_progress": False}
    here = in_parts.predict(*go, "here", **given)
    shares, shared_by = [], PartWork.shared_by

    def noted(work, workers):
        shares.append((work.predictor.num_photos, workers))
        return shared_by(work, workers)

    monkeypatch.setattr(PartWork, "shared_by", noted)
    there = in_parts.predict(*go, "there", runner=runner, workers=2, **given)
    assert lines_of("there") == lines_of("here")
    assert (
        (there.answered, there.unreadable)
        == (10, 1)
        == (
            here.answered,
            here.unreadable,
        )
    )
    again = in_parts.predict(*go, "there", runner=runner, workers=2, **given)
    assert (again.earlier, again.answered) == (10, 0)
    assert shares == [(11, 2)]


def test_a_dataset_of_ray_gets_columns(folder, files):
    ray = pytest.importorskip("ray")
    from train.predict import on_ray

    predictor = PhotoPredictor(str(files / "model.onnx"))
    paths = sorted(str(path.absolute()) for path in pathlib.Path("photos").iterdir())
    dataset = ray.data.from_items([{"id": n, "file": p} for n, p in enumerate(paths)])
    found = on_ray.predict(dataset, predictor, workers=1).to_pandas().sort_values("id")
    expected = predictor(paths)
    assert found["error"].notna().sum() == 1
    for row, answer in zip(found.to_dict("records"), expected, strict=True):
        if answer["error"] is None:
            for name in PROBABILITIES:
                assert row[name] == answer[name]
    photos = ray.data.read_binary_files([p for p in paths if p.endswith("png")])
    of_bytes = on_ray.predict(photos, predictor, column="bytes", workers=1)
    labels = {row["label"] for row in of_bytes.take_all()}
    assert labels == {row["label"] for row in expected} - {None}


def test_run_inference_of_beam_answers_keyed_photos(folder, files):
    beam = pytest.importorskip("apache_beam")
    from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
    from apache_beam.testing.util import assert_that, equal_to

    from train.predict import on_beam

    predictor = PhotoPredictor(str(files / "model.onnx"))
    photos = [("a", "photos/0.png"), ("b", pathlib.Path("photos/1.png").read_bytes())]
    rows = predictor([photo for _, photo in photos])
    handler = KeyedModelHandler(on_beam.PhotoHandler(predictor))
    with beam.Pipeline() as steps:
        answers = steps | beam.Create(photos) | RunInference(handler)
        assert_that(answers, equal_to([("a", rows[0]), ("b", rows[1])]))


@pytest.mark.parametrize("runner", MODULES)
def test_an_error_of_a_worker_is_the_command_s(runner, folder, files):
    pytest.importorskip(MODULES[runner])
    os.mkfifo("a.tar")
    with pytest.raises(RunError, match=r"a\.tar cannot be read: .*[^.]\. The"):
        in_parts.predict(
            str(files / "model.onnx"),
            ["a.tar"],
            "out",
            runner=runner,
            workers=1,
            show_progress=False,
        )


def test_a_pipeline_of_beam_that_ends_early_is_named(monkeypatch):
    beam = pytest.importorskip("apache_beam")
    from train.predict import on_beam

    monkeypatch.setattr(beam, "Pipeline", mock.MagicMock())
    monkeypatch.setattr(beam, "ParDo", mock.Mock())
    work = mock.Mock(**{"folder.written.return_value": set()})
    with pytest.raises(LibraryError, match=r"Beam failed \(its pipeline ended early\)"):
        list(on_beam.run(work, [0], 1))


def test_a_worker_of_ray_that_crashes_again_and_again_is_named(
    tmp_path, monkeypatch, capfd
):
    ray = pytest.importorskip("ray")
    from train.predict import on_ray

    logs = tmp_path / "ray" / "session_latest" / "logs"
    logs.mkdir(parents=True)
    (logs / "worker-1.err").write_text("F0000 Check failed\nFatal Python error: x\ny\n")
    (logs / "worker-2.err").write_text("a notice\n")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    options = {}

    def map_batches(worker, **ray_remote_args):
        options.update(ray_remote_args)
        failed = ray.exceptions.ActorDiedError()
        return mock.Mock(**{"iter_rows.side_effect": failed})

    data = mock.Mock(map_batches=map_batches)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray.data, "from_items", lambda *_, **__: data)
    with pytest.raises(LibraryError, match="Ray failed"):
        list(on_ray.run(mock.Mock(), [0], 1))
    assert 0 < options["max_task_retries"] < 10
    assert capfd.readouterr().err == "F0000 Check failed\n"


@pytest.mark.parametrize("name", MODULES.values())
def test_a_runner_that_is_missing_is_named(name, monkeypatch):
    find = in_parts.packages.importlib.util.find_spec
    monkeypatch.setattr(
        in_parts.packages.importlib.util,
        "find_spec",
        lambda module: None if module == name else find(module),
    )
    runner = next(one for one, module in MODULES.items() if module == name)
    with pytest.raises(RunError, match=rf"--runner={runner} needs .*pip install"):
        in_parts.predict("m.onnx", ["photos"], "out", runner=runner)


def killed_worker(runner, session):
    """Kills a worker of a command, found by its session; returns whether it did."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            title = (folder / "cmdline").read_bytes().decode(errors="replace")
            process = int(folder.name)
            if WORKERS[runner] in title and os.getsid(process) == session:
                os.kill(process, signal.SIGKILL)
                return True
    return False


@pytest.mark.soak
@pytest.mark.parametrize("runner", MODULES)
def test_kills_of_workers_and_commands_lose_and_repeat_nothing(runner, folder, files):
    """Ten kills of a worker and five of the command, among 20,000 photos."""
    pytest.importorskip(MODULES[runner])
    pixels = np.random.default_rng(0).integers(0, 256, (20_000, 6, 8, 3), "uint8")
    os.mkdir("many")
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(f"many/{number:05d}.png")
    command = [sys.executable, "-m", "train.predict", files / "model.onnx", "many"]
    environment = os.environ | {"PYTHONPATH": keras_vit_start.HERE}
    given = {"env": environment, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, "--out=one.csv"], check=True, **given)
    command += ["--out=out", "--parts=csv", f"--runner={runner}", "--workers=2"]
    done, kills, end, starts = pathlib.Path("out/_done"), 0, False, 0
    while not end:
        starts += 1
        assert starts < 30
        before = len(list(done.glob("*.json")))
        process = subprocess.Popen(command, start_new_session=True, **given)
        while process.poll() is None:
            time.sleep(0.2)
            if kills < 15 and len(list(done.glob("*.json"))) > before:
                before = len(list(done.glob("*.json")))
                if kills % 3 == 2:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    kills += 1
                else:
                    kills += killed_worker(runner, process.pid)
        end = process.returncode == 0
    assert kills == 15
    # Ray starts workers again; Beam's command ends with each.
    assert starts <= (6 if runner == "ray" else 16)
    expected = pathlib.Path("one.csv").read_text().splitlines()[1:]
    assert lines_of("out") == sorted(expected)
