"""The views of a run directory as one document."""

import json
import math
from pathlib import Path

from sparktrain.rundir.metric_log import block_paths
from sparktrain.views.report.encoding import encoded
from sparktrain.views.report.reading import read_document
from tests.unit.driver.stored import HandClock, ScriptedRun, typical


def test_a_run_as_a_document(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    document = read_document(run.directory, HandClock())
    assert document.headline.counts == {"queued": 1, "running": 1, "succeeded": 1, "failed": 1}
    assert [row.status for row in document.trials] == ["succeeded", "failed", "running", "queued"]
    assert document.views.history is not None
    assert (document.views.history.trials, document.views.history.values) == ((0,), (0.9,))
    assert document.views.timeline is not None
    kinds = [document.views.timeline.kinds[bar.kind] for bar in document.views.timeline.bars]
    assert sorted(kinds) == ["failed", "restarted", "restarted", "succeeded"]
    assert "at least 20 trials" in document.views.importance.reason
    assert "there is 1, so 19 more are missing" in document.views.importance.reason


def test_values_that_json_lacks_are_null(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path / "runs", total=1).begin()
    run.add({"lr": 1})
    run.form(0)
    run.succeed(0, accuracy=math.nan)
    run.end()
    document = json.loads(encoded(read_document(run.directory, HandClock())))
    assert document["trials"][0]["metrics"] == {"accuracy": None}
    assert document["views"]["history"] is None


def test_reports_that_are_corrupt_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = typical(tmp_path / "runs")
    run.note(0, 1, 2, 3, accuracy=0.5)
    whole = read_document(run.directory, HandClock())
    assert [curves.metric for curves in whole.views.curves] == ["accuracy"]
    [block] = block_paths(run.store, run.layout)
    (tmp_path / "runs" / block).write_bytes(b"no table")
    document = read_document(run.directory, HandClock())
    assert document.views.curves == ()
    [problem] = document.headline.problems
    assert problem.startswith("the reports cannot be read")
    assert len(document.trials) == 4
