"""Runs of an earlier version are read, and their journals are written as that version wrote them."""

import re
from pathlib import Path

import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.rundir.journal import journal_file
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from tests.support.earlier_runs import STATES, unpack

WAYS = {"absent": [["shrunk"]], "paused": [["paused"], ["paused"], []], "standby": [[]]}


@pytest.mark.parametrize("state", STATES)
def test_a_run_of_an_earlier_version_is_read(state: str, tmp_path: Path) -> None:
    observer = Observer(run_in(str(unpack(state, tmp_path))), SystemClock())
    trials = observer.look().trials
    assert [[restart.how for restart in trial.result.restarts] for trial in trials] == WAYS.get(state, [[], [], []])
    assert {trial.result.status for trial in trials} & {"running"}


@pytest.mark.parametrize("state", STATES)
def test_its_journal_is_written_byte_for_byte(state: str, tmp_path: Path) -> None:
    for path in unpack(state, tmp_path).glob("journal/batch-*"):
        term, number = map(int, re.findall(r"\d+", path.name))
        content = path.read_bytes()
        records = journal_file.decode(content, path.name, "batch", term, number).records
        lines = [journal_file._json(record).replace(b',"reached_step":null', b"") for record in records]
        assert lines == [line[9:] for line in content.splitlines()[1:]], "without what it has later"
