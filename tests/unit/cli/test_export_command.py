"""`sparktrain export`, on run directories that no Spark has written."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.cli import common, export_command
from sparktrain.cli.common import LOOKING_CODES
from sparktrain.results.parquet_table import parquet_of
from sparktrain.runs.results_json import trial_json
from tests.unit.driver.stored import ScriptedRun, typical

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> ScriptedRun:
    made = typical(tmp_path / "runs")
    made.note(0, 1, 2, loss=0.5)
    made.note(2, 1, loss=float("nan"), accuracy=0.25)
    return made


def output_of(capfd: Capture, *words: str) -> str:
    assert cli.main(["export", *words]) == 0
    return capfd.readouterr().out


def test_trials_as_csv(run: ScriptedRun, capfd: Capture) -> None:
    rows = list(csv.DictReader(io.StringIO(output_of(capfd, run.directory, "--csv"))))
    assert [row["status"] for row in rows] == ["succeeded", "failed", "running", "queued"]
    assert (rows[0]["params.lr"], rows[0]["metrics.accuracy"], rows[1]["metrics.accuracy"]) == ("1.0", "0.9", "")
    assert rows[1]["error"] == "ValueError: units"
    assert output_of(capfd, run.directory) == output_of(capfd, run.directory, "--csv")


def test_a_history_as_csv_is_read_back_as_it_was(run: ScriptedRun, capfd: Capture) -> None:
    written = output_of(capfd, run.directory, "--history")
    assert written.splitlines()[0] == "trial,generation,rank,step,time,loss,accuracy"
    back = pd.read_csv(io.StringIO(written), parse_dates=["time"])
    pd.testing.assert_frame_equal(back, st.load(run.directory).history(), check_dtype=False)


def test_reports_in_long_form(run: ScriptedRun, tmp_path: Path, capfd: Capture) -> None:
    run.note(2, 1, generation=2, loss=0.25)
    run.note(2, 2, generation=2, **{"=cmd()": 1e300, "-x": float("inf")})
    wanted = st.load(run.directory).reports()
    assert wanted["superseded"].tolist() == [False, False, True, True, False, False, False]
    path = tmp_path / "reports.parquet"
    output_of(capfd, run.directory, "--parquet", "--reports", "-o", str(path))
    pd.testing.assert_frame_equal(pd.read_parquet(path), wanted, check_dtype=False)
    rows = list(csv.DictReader(io.StringIO(output_of(capfd, run.directory, "--reports"))))
    assert [(row["name"], row["value"]) for row in rows[-3:]] == [
        ("loss", "0.25"),
        ("'=cmd()", "1e+300"),
        ("'-x", "inf"),
    ]
    steps = [json.loads(line) for line in output_of(capfd, run.directory, "--jsonl", "--reports").splitlines()]
    assert [(row["name"], row["value"], row["superseded"]) for row in steps[2:4]] == [
        ("loss", None, True), ("accuracy", 0.25, True),
    ]  # fmt: skip


def test_text_that_a_spreadsheet_takes_for_a_formula_gets_a_quote() -> None:
    columns = {
        "=x": ["=1+1", "+2", "-3", "@A1", "a=b"],
        "number": np.asarray([-1.0, -2.5, 3.0, -4.0, 5.0]),
        "mixed": [-1, "-1", None, 0.5, "x"],
    }
    written = export_command.as_csv(columns).decode().splitlines()
    assert written == ["'=x,number,mixed", "'=1+1,-1.0,-1", "'+2,-2.5,'-1", "'-3,3.0,", "'@A1,-4.0,0.5", "a=b,5.0,x"]


def test_json_lines(run: ScriptedRun, capfd: Capture) -> None:
    trials = [json.loads(line) for line in output_of(capfd, run.directory, "--jsonl").splitlines()]
    result = st.load(run.directory)
    assert trials == [trial_json(trial) for trial in result.trials]
    steps = [json.loads(line) for line in output_of(capfd, run.directory, "--jsonl", "--history").splitlines()]
    assert [(row["trial"], row["step"], row["loss"], row["accuracy"]) for row in steps] == [
        (0, 1, 0.5, None), (0, 2, 0.5, None), (2, 1, None, 0.25),
    ]  # fmt: skip


def test_parquet_is_read_back_as_it_was(run: ScriptedRun, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "history.parquet"
    output_of(capfd, run.directory, "--parquet", "--history", "-o", str(path))
    pd.testing.assert_frame_equal(pd.read_parquet(path), st.load(run.directory).history(), check_dtype=False)
    output_of(capfd, run.directory, "--parquet", "-o", str(path))
    assert list(pd.read_parquet(path)["status"]) == ["succeeded", "failed", "running", "queued"]


def test_parquet_of_values_without_a_common_type_is_json_text() -> None:
    columns = {"mixed": [1, "a", None], "lists": [[1], [], None], "nothing": [None] * 3}
    back = pd.read_parquet(io.BytesIO(parquet_of(columns)))
    assert [list(back[name][:2]) for name in ("mixed", "lists")] == [["1", '"a"'], ["[1]", "[]"]]
    assert back.isna().sum().to_dict() == {"mixed": 1, "lists": 1, "nothing": 3}


def test_a_run_of_one_gang(tmp_path: Path, capfd: Capture) -> None:
    made = ScriptedRun(tmp_path / "runs", "big", total=1).begin()
    assert output_of(capfd, made.directory, "--csv").count("\n") == 1
    made.add({"lr": 0.1})
    assert "0,0.1,queued" in output_of(capfd, made.directory, "--csv")
    assert output_of(capfd, made.directory, "--csv", "--history") == "trial,generation,rank,step,time\n"


@pytest.mark.parametrize(
    ("words", "table", "missing"),
    [
        (["--csv", "--reports"], "trial,generation,rank,step,time,name,value,superseded\n", "reports"),
        (["--csv"], "id,status,seconds,error,log,generations,host\n", "trials"),
        (["--jsonl"], "", "trials"),
        (["--csv", "--history"], "trial,generation,rank,step,time\n", "reports"),
        (["--jsonl", "--history"], "", "reports"),
    ],
)
@pytest.mark.parametrize("to_file", [False, True])
def test_a_table_without_rows_is_written_and_named(
    tmp_path: Path, capfd: Capture, words: list[str], table: str, missing: str, to_file: bool
) -> None:
    made = ScriptedRun(tmp_path / "runs", "new").begin()
    target = tmp_path / "table"
    assert cli.main(["export", made.directory, *words, *(["-o", str(target)] if to_file else [])]) == 0
    shown = capfd.readouterr()
    assert (target.read_text() if to_file else shown.out) == table
    assert shown.err == f"run new has no {missing} yet: the table has no rows\n"


def test_a_file_is_replaced_as_a_whole(run: ScriptedRun, tmp_path: Path, capfd: Capture) -> None:
    target = tmp_path / "trials.csv"
    target.write_text("old")
    assert output_of(capfd, run.directory, "-o", str(target)) == ""
    assert target.read_text() == output_of(capfd, run.directory)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".trials")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--csv", "--jsonl"], "two formats of one table"),
        (["--history", "--reports"], "two forms of what trials reported: pass one of them"),
        (["-o", "nowhere/trials.csv"], "in no folder that exists: pass the path of a local file"),
        (["-o", "."], "is a folder"),
        (["-o", ""], "pass the path of a local file"),
    ],
)
def test_wrong_options_are_refused_before_the_run_is_read(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "no-run", *words]) == 2
    shown = capfd.readouterr()
    assert message in shown.err
    assert "is no run directory" not in shown.err
    assert shown.out == ""


def test_a_folder_that_takes_no_file(run: ScriptedRun, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert cli.main(["export", run.directory, "-o", str(Path(run.directory, "x.csv"))]) == 2
    assert "x.csv) cannot be written: Permission denied" in capfd.readouterr().err


def test_a_directory_without_a_run(tmp_path: Path, capfd: Capture) -> None:
    assert cli.main(["export", str(tmp_path / "none"), "--csv"]) == 2
    assert "is no run directory" in capfd.readouterr().err


def test_a_store_that_fails(run: ScriptedRun, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: str) -> None:
        raise st.StoreError("the NameNode does not answer")

    monkeypatch.setattr("sparktrain.results.stored_result.load", fail)
    assert cli.main(["export", run.directory]) == 5
    assert "the NameNode does not answer" in capfd.readouterr().err


def test_its_help_has_exit_codes_and_examples_that_parse(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = output_of(capfd, "--help")
    assert all(f"\n  {code:>3}  " in shown for code in LOOKING_CODES)
    monkeypatch.setattr(common, "look", lambda work, **options: 0)
    lines = [line for line in export_command.EXPORT_EXAMPLES.splitlines() if line.startswith("  ")]
    assert [cli.main(line.split()[1:]) for line in lines] == [0] * 5
