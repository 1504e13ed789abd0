"""Where the coordinator of a call runs, and what a call of its own in the cluster needs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import sparktrain as st
from sparktrain.driver.clustered.coordinator_place import check_cluster_call, runs_in_cluster, scout
from sparktrain.driver.engines.local_engine import LocalEngine
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.errors import DriverUnreachableError, ResourceError, SpecError
from sparktrain.protocol.scouting import ScoutReport, ScoutTicket


class FarEngine(LocalEngine):
    """In place of a Connect session: its executors see what the test sets."""

    runs_jobs = True
    is_remote = True

    def __init__(self, report: ScoutReport) -> None:
        super().__init__(st.local(slots=2))
        self.report = report
        self.tickets: list[ScoutTicket] = []

    def scout(self, ticket: ScoutTicket, timeout_s: float) -> ScoutReport:
        self.tickets.append(ticket)
        return self.report


def train(x: int) -> float:
    return float(x)


def call(directory: str, **options: Any) -> CheckedCall:
    return compose(train, {"x": [1]}, SweepOptions(metric="y", mode="max", dir=directory, **options))


def far(**report: Any) -> FarEngine:
    return FarEngine(ScoutReport("host-1", **report))


def test_a_path_of_this_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"a path of this machine, .* must reach the run directory.* or file:///"):
        check_cluster_call(call(str(tmp_path)), far())
    check_cluster_call(call(f"file://{tmp_path}"), far())


def test_a_local_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spark=sparktrain.local\(\): there is no cluster"):
        check_cluster_call(call(f"file://{tmp_path}"), LocalEngine(st.local(slots=2)))


def test_a_sampler_that_no_directory_holds_is_refused(tmp_path: Path) -> None:
    import optuna

    space = {"x": st.uniform(0, 1)}
    chosen = SweepOptions(
        metric="y", mode="max", dir=f"file://{tmp_path}", sampler=optuna.samplers.RandomSampler(), trials=2
    )
    with pytest.raises(SpecError, match="holds the names of samplers and no objects"):
        check_cluster_call(compose(train, space, chosen), far())


def test_the_place_is_the_cluster_where_executors_cannot_reach_the_client(tmp_path: Path) -> None:
    directory = f"file://{tmp_path}"
    assert runs_in_cluster(call(directory), LocalEngine(st.local(slots=2))) is None
    assert runs_in_cluster(call(directory), far(reaches_client=True)) is None
    assert "host-1 cannot reach this client at 127.0.0.1" in str(runs_in_cluster(call(directory), far()))
    assert runs_in_cluster(call(directory, coordinator="cluster"), far()) == "as the call asks"
    asked = far()
    assert runs_in_cluster(call(directory, coordinator="driver"), asked) is None
    assert asked.tickets == []
    with pytest.raises(DriverUnreachableError, match="so the coordinator must run in the cluster, and cannot: dir="):
        runs_in_cluster(call(str(tmp_path)), far())


def test_executors_must_see_the_directory_of_the_client(tmp_path: Path) -> None:
    checked = call(f"file://{tmp_path}")
    with pytest.raises(ResourceError, match=r"host host-1 sees another .* than this process"):
        scout(checked, far(), b"")
    with pytest.raises(ResourceError, match=r"host host-1 cannot use .*: Permission denied"):
        scout(checked, far(problem="Permission denied"), b"")
    engine = far(sees_marker=True, versions={"python": "3.11"})
    assert scout(checked, engine, b"").versions == {"python": "3.11"}
    assert not list(tmp_path.iterdir()), "the marker is gone"
    assert engine.tickets[0].marker


def test_a_scout_looks_at_the_store_with_its_own_eyes(tmp_path: Path) -> None:
    from sparktrain.executor.scout import scout as look

    checked = call(f"file://{tmp_path}")
    store = checked.definition.store
    store.put_if_absent("marker", b"")
    seen, other = (
        msgspec.json.decode(look(ScoutTicket(store.address, name)), type=ScoutReport) for name in ("marker", "other")
    )
    assert (seen.sees_marker, seen.problem, other.sees_marker) == (True, "", False)
    assert "python" in seen.versions
