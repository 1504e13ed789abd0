"""What a client concludes from YARN's report of the application that performs a call."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.cluster.yarn_application import Application
from sparktrain.cluster.yarn_client import ResourceManager
from sparktrain.driver.clustered import application_lookout
from sparktrain.driver.clustered.application_lookout import ApplicationLookout
from sparktrain.driver.clustered.application_packet import StoredApplication, newest_application, write_application
from sparktrain.driver.clustered.run_handle import FollowedRun
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.prepare.naming import take_name
from sparktrain.errors import AgentsLostError, ResourceError
from sparktrain.rundir.coordinator_folder import CallEnd, CoordinatorFolder
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.locate import RunLocation
from tests.unit.driver.stored import age

CALL = "0123456789ab"
REPORTED: dict[str, Any] = {"id": "application_1_0001", "final_status": "UNDEFINED"}


def train(x: int) -> float:
    return float(x)


@pytest.fixture
def place(tmp_path: Path) -> RunLocation:
    """A run that no driver has started."""
    call = compose(train, {"x": [1]}, SweepOptions(metric="y", mode="max", dir=str(tmp_path), name="run"))
    definition = take_name(attach(call)).definition
    return RunLocation(definition.store, definition.layout)


def requested(place: RunLocation, *, ago_s: float = 0.0, call: str = CALL) -> None:
    """Another client requests an application; its clock is years behind."""
    write_application(
        place.store, place.layout, call, StoredApplication(tag=f"tag-{call}", at=1e9, urls=("http://rm",))
    )
    age(Path(place.store.where(place.layout.coordinators)) / call, ago_s)


def reports(monkeypatch: pytest.MonkeyPatch, *applications: Application) -> list[tuple[tuple[str, ...], str]]:
    """Have YARN report `applications`; returns whom it was asked of."""
    queries = []

    def answer(manager: ResourceManager, tag: str) -> list[Application]:
        queries.append((manager.urls, tag))
        return list(applications)

    monkeypatch.setattr(ResourceManager, "applications", answer)
    monkeypatch.setattr(application_lookout, "driver_output", lambda application, characters: "No module named x")
    return queries


def gone(place: RunLocation) -> Exception | None:
    lookout = ApplicationLookout.newest(place)
    assert lookout is not None
    return lookout.failure(FollowedRun(place).look())


def test_the_newest_application_of_a_run_counts(place: RunLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert newest_application(place.store, place.layout) is None
    requested(place, call="b" * 12, ago_s=60.0)
    requested(place, call="a" * 12)
    queries = reports(monkeypatch)
    assert gone(place) is None
    [(urls, tag)] = queries
    assert urls[-1] == "http://rm"
    assert tag == f"tag-{'a' * 12}"
    assert all(place.layout.owns(path) for path in place.store.list(place.layout.coordinators))
    shutil.copytree(place.where, f"{place.where}-copy")
    assert newest_application(place.store, RunLayout("run-copy")) is None, "it performs the original"


@pytest.mark.parametrize("state", ["ACCEPTED", "RUNNING"])
def test_a_run_waits_for_its_application(place: RunLocation, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    requested(place, ago_s=100_000.0)
    reports(monkeypatch, Application(state=state, **REPORTED))
    assert gone(place) is None
    assert st.attach(place.where).status == state.lower()


def test_an_application_that_is_over_without_the_run_is_an_error(
    place: RunLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested(place)
    ended = {**REPORTED, "final_status": "FAILED", "diagnostics": "User application exited with status 1"}
    reports(monkeypatch, Application(state="FINISHED", **ended))
    error = gone(place)
    assert isinstance(error, AgentsLostError)
    text = str(error)
    assert "application_1_0001 is FAILED: User application exited with status 1; its driver has not ended run" in text
    assert "to continue: " in text
    assert text.endswith("the end of what its driver printed: No module named x")


def test_an_application_that_never_comes_is_an_error_after_the_time_to_submit_it(
    place: RunLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(monkeypatch)
    requested(place, ago_s=800.0)
    assert gone(place) is None
    requested(place, ago_s=1000.0, call="d" * 12)
    with pytest.raises(AgentsLostError, match="YARN has no application for run run, which was requested 900 s ago"):
        raise gone(place) or AssertionError
    requested(place, call="c" * 12)
    assert gone(place) is None


def test_a_resource_manager_that_does_not_answer_is_no_end(place: RunLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    requested(place, ago_s=100_000.0)
    monkeypatch.setattr(ResourceManager, "applications", lambda manager, tag: None)
    assert gone(place) is None


def test_the_result_raises_what_the_driver_has_stored(place: RunLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    requested(place)
    reports(monkeypatch)
    folder = CoordinatorFolder(place.store, place.layout.coordinator(CALL))
    folder.finish(CallEnd("ResourceError", "a gang of 4 does not fit"))
    with pytest.raises(ResourceError, match="a gang of 4 does not fit"):
        st.attach(place.where).result(60.0)
