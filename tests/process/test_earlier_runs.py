"""A run that an earlier version left is resumed."""

from pathlib import Path

import sparktrain as st
from tests.support.earlier_runs import unpack


def test_a_run_of_an_earlier_version_whose_driver_was_lost_is_resumed(tmp_path: Path) -> None:
    result = st.resume(str(unpack("dead", tmp_path)), spark=st.local(slots=1), progress=False)
    assert [trial.metrics for trial in result.trials] == [{"y": 1.0}, {"y": 2.0}, {"y": 3.0}]
    assert [trial.generations for trial in result.trials] == [1, 2, 1]
    (restart,) = result.trials[1].restarts
    assert (restart.how, restart.resumed_from_step, restart.excused) == ("restarted", 3, True)
