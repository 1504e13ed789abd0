"""Losses that are announced: what trains there moves before it is lost, and uses no retry."""

import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

import sparktrain as st
from sparktrain import cli
from tests.faults import announcing
from tests.faults.announcing import EVERY
from tests.support.local_spark import spark_session
from tests.support.processes import Sighted, wait_until

TWO_SLOTS = st.local(slots=2)
QUICK: dict[str, Any] = {"preload": ["numpy"], "progress": False, "max_retries": 0}


def processes(folder: Path) -> Sighted:
    """The agent that had notice, and its member."""
    return Sighted(map(int, (folder / "pids").read_text().split()))


def test_a_trial_leaves_an_agent_that_gets_sigterm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    params = {"folder": [str(tmp_path)], "victim": ["agent"]}
    runs = str(tmp_path / "runs")
    result = st.sweep(
        announcing.train, params, metric="steps", mode="max", dir=runs, name="run", spark=st.local(slots=1), **QUICK
    )
    [trial] = result.trials
    [restart] = trial.restarts
    assert (restart.cause, restart.drained, restart.loss) == ("drained: SIGTERM", True, None)
    assert restart.resumed_from_step is not None
    assert restart.resumed_from_step % EVERY == 0
    assert trial.metrics == {"steps": restart.resumed_from_step + EVERY}
    assert cli.main(["status", f"{runs}/run"]) == 0
    assert "1 agent had notice, and no member is left there: agent 0 on " in capfd.readouterr().out
    processes(tmp_path).wait_gone(10.0)


def test_agents_that_find_a_notice_get_no_member_and_one_that_cannot_look_trains_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = str(tmp_path / "runs")
    params = {"folder": [str(tmp_path)], "victim": ["none"], "number": [1]}
    result = st.sweep(
        announcing.train, params, metric="steps", mode="max", dir=runs, name="runs", spark=st.local(slots=1),
        notice="http://127.0.0.1:1/", **QUICK,
    )  # fmt: skip
    assert [trial.status for trial in result.trials] == ["succeeded"]
    [first, last] = [each.getMessage() for each in caplog.records if "notice" in each.getMessage()]
    assert "notice cannot be read on " in first
    assert "could not be read by 1 agent, at least 1 look in all" in last
    (tmp_path / "leaving").touch()
    with pytest.raises(st.JoinTimeoutError, match="; 1 more is drained"):
        st.sweep(
            announcing.train, params, metric="steps", mode="max", dir=runs, name="none", spark=st.local(slots=1),
            notice=tmp_path / "leaving", start_timeout=2, **QUICK,
        )  # fmt: skip


@pytest.mark.all(
    case="SIGTERM to an executor of Spark", covered_by="to an agent; `unit/executor/test_departure`, `spark/test_run`"
)
def test_a_gang_leaves_an_executor_that_gets_sigterm(tmp_path: Path) -> None:
    params = {"folder": str(tmp_path), "victim": "executor"}
    with spark_session("local-cluster[3,1,1024]", tmp_path) as session:
        session.range(0, 3, 1, 3).count()
        result = st.run(
            announcing.train, params, workers=2, agents=3, backend="none", spark=session, dir=str(tmp_path / "runs"),
            name="run", **QUICK,
        )  # fmt: skip
        [restart] = result.restarts
        assert (restart.cause, restart.drained, restart.rank) == ("drained: SIGTERM to its executor", True, 1)
        processes(tmp_path).wait_gone(10.0)


def decommission(session: SparkSession, folder: Path) -> None:
    """Once the training has written the pids of its processes, Spark decommissions the executor of its agent."""
    wait_until((folder / "pids").exists, 60.0, "rank 1 trains")
    scheduler = session._sc._jsc.sc().taskScheduler()
    jvm = session._sc._jvm
    agent = int((folder / "pids").read_text().split()[0])
    command = psutil.Process(agent).parents()[1].cmdline()
    executor = command[command.index("--executor-id") + 1]
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", jvm.scala.Option.empty())
    assert scheduler.backend().decommissionExecutor(executor, info, False, False)


@pytest.mark.all(
    case="an executor that Spark decommissions", covered_by="`unit/cluster/test_announced_losses`, with Spark's answers"
)
def test_a_gang_leaves_an_executor_that_spark_decommissions(tmp_path: Path) -> None:
    params = {"folder": str(tmp_path), "victim": "none"}
    conf = {"spark.decommission.enabled": "true"}
    with spark_session("local-cluster[3,1,1024]", tmp_path, conf) as session:
        session.range(0, 3, 1, 3).count()
        thread = threading.Thread(target=decommission, args=(session, tmp_path))
        thread.start()
        result = st.run(
            announcing.train, params, workers=2, backend="none", spark=session, dir=str(tmp_path / "runs"), name="run",
            **QUICK,
        )  # fmt: skip
        thread.join()
        [restart] = result.restarts
        assert (restart.cause.rstrip("012"), restart.drained) == ("drained: Spark decommissions executor ", True)
        processes(tmp_path).wait_gone(10.0)
