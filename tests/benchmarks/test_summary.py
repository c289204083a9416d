"""Medians, ratios and shares of made-up measurements."""

import json

import pytest

from benchmarks import command, report
from benchmarks.summary import summarize


def record(name, seconds, **fields):
    return {
        "name": name,
        "ours": False,
        "items": 8,
        "operations": 4e9,
        "error": None,
        "seconds": seconds,
        "cpu_seconds": [[2 * value for value in turn] for turn in seconds],
        "peak_bytes": 3_000_000,
        "import_bytes": 1_000_000,
        "setup_seconds": 5.0,
        **fields,
    }


def calibration(*rates):
    return record("matrix product", [[4e9 / rate] for rate in rates])


def failed(name, **fields):
    return record(name, [], error="ValueError: no", **fields)


def figures(result):
    return {entry["name"]: entry for entry in result["contenders"]}


PEER = record("peer", [[2.0, 2.0, 9.0], [4.0, 4.0, 4.0], [2.0, 1.0, 4.0]])
OURS = record("ours", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], ours=True)


def test_ratio_is_the_median_of_the_ratios_of_the_rounds():
    result = figures(
        summarize([OURS, PEER], calibration=calibration(1e9, 1.1e9, 1.05e9))
    )
    # Round by round 2 / 1, 4 / 1 and 2 / 2: the medians of all would say 4 / 1.
    assert result["ours"]["ratios"] == [2.0, 4.0, 1.0]
    assert result["ours"]["ratio"] == 2.0
    peer = result["peer"]
    assert peer["ratio"] == 1.0
    assert peer["p50"] == 4.0
    assert peer["best"] == 1.0
    assert peer["p95"] == pytest.approx(7.0)
    assert peer["items_per_second"] == 2.0
    assert peer["cpu_p50"] == 8.0
    assert peer["share_of_limit"] == pytest.approx(4e9 / 4.0 / 1.05e9)


@pytest.mark.parametrize(
    "records, reference, expected, problem",
    [
        ([OURS, PEER], "ours", "ours", None),
        ([OURS, PEER], None, "peer", None),
        ([OURS, PEER], "absent", "peer", None),
        ([OURS], None, "ours", None),
        ([OURS, failed("hub"), PEER], "hub", "peer", None),
        ([OURS, failed("hub")], "hub", "ours", "Every peer failed"),
        ([failed("mine", ours=True), OURS, PEER], None, "peer", "mine failed"),
        ([failed("mine", ours=True), failed("hub")], "hub", None, "mine failed"),
    ],
)
def test_what_fails(records, reference, expected, problem):
    """The reference is one that ran; ours must run, and one of the peers."""
    result = summarize(records, reference)
    assert result["reference"] == expected
    failure = command.failure(result)
    assert failure is None if problem is None else failure.startswith(problem)


@pytest.mark.parametrize(
    "rates, void", [((1e9, 0.86e9), False), ((0.84e9, 1e9, 1e9), True), ((), False)]
)
def test_noisy_run_is_void(rates, void):
    measured = calibration(*rates) if rates else failed("matrix product")
    result = summarize([OURS], calibration=measured)
    notes = " ".join(report.notes(result))
    assert result["void"] is void is ("VOID" in notes)
    assert rates or "ValueError: no" in notes
    assert rates or figures(result)["ours"]["share_of_limit"] is None


def test_table_has_every_contender():
    result = summarize([OURS, failed("hub"), PEER], calibration=calibration(4e9, 4e9))
    header, rows = report.table(result)
    assert header[0] == "contender" and "ratio to peer" in header
    assert {len(row) for row in rows} == {len(header)}
    by_header = dict(zip(header, rows[0], strict=True))
    assert by_header == {
        "contender": "ours",
        "ms p50": "1,000",
        "p95": "2,000",
        "best": "1,000",
        "images/s": "8.00",
        "CPU s": "2.00",
        "ratio to peer": "2.00",
        "share of limit": "100%",
        "peak MB": "3",
        "setup s": "5.00",
        "import MB": "1",
    }
    assert rows[1][:2] == ["hub", "failed"]
    assert report.table(summarize([failed("hub")]))[0][6] == "ratio"
    assert "hub failed: ValueError: no" in report.notes(result)


def test_json_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "new" / "result.json"
    report.write_json(path, {"void": False})
    with pytest.raises(TypeError):
        report.write_json(path, {"void": True, "then": object()})
    assert json.loads(path.read_text()) == {"void": False}
    assert [*path.parent.iterdir()] == [path]
