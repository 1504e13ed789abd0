"""What a driver makes of what others have left in the run directory."""

import asyncio
import json
import socket
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from msgspec import structs

from sparktrain.base.ids import RunId, TrialId
from sparktrain.driver.finish import finished, result
from sparktrain.driver.prepare.attached_run import AttachedRun, attach
from sparktrain.driver.prepare.checked_call import CheckedCall
from sparktrain.driver.prepare.naming import take_name
from sparktrain.driver.run_request import RunOutcome
from sparktrain.errors import DeposedError, ResumeError, RunDirectoryError, SamplerError
from sparktrain.protocol.certificates import issue, server_fingerprint
from sparktrain.protocol.grpc import GrpcListener
from sparktrain.results.sweep_result import SweepResult, sweep_result
from sparktrain.rundir.journal import reader
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.writer import Journal
from sparktrain.runs import history
from sparktrain.runs.results_json import from_json
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.search.sampler import Observation, ObservedStatus, PastSuggestion, Suggestion
from sparktrain.search.space import Space, grid
from sparktrain.search.space_json import to_document
from sparktrain.state.commands import EndRun
from sparktrain.state.ending import Ending
from sparktrain.state.outcome import Failure, FailureKind
from sparktrain.state.records import AnyRecord, DriverStarted, RunEnded, TrialConcluded, TrialsAdded
from sparktrain.state.trial import TrialStatus
from sparktrain.store.base import Store
from tests.support.run_stages import in_store, requested, with_rules
from tests.unit.driver.drivers import Climber, Driver, World, play, prepared, whole
from tests.unit.store.gated import MemoryStore

TRIALS = 6
OTHER = DriverIdentity(host="other", pid=7, started=0.0, sparktrain="1", address="192.0.2.1:5", fingerprint="f")


def driven(world: World, run: CheckedCall) -> tuple[SweepResult, RunOutcome]:
    """A driver runs `run` to its end."""
    ran = play(Driver(world, run, whole).run())
    return result(in_store(run, world.store).definition, ran, None), ran


def attached(world: World, run: CheckedCall | None = None) -> AttachedRun:
    return attach(in_store(run or prepared(TRIALS), world.store))


def with_journal(world: World, records: Iterable[AnyRecord], who: DriverIdentity = OTHER) -> World:
    """The same run with a journal of these records, and without results, which would follow from others."""
    other, results = World(), prepared(TRIALS).definition.layout.results
    kept = {path: data for path, data in world.store.files.items() if "/journal/" not in path and path != results}
    other.store.files.update(kept)
    journal, _ = Journal.claim(other.store, prepared(TRIALS).definition.layout.journal, who)
    journal.append(list(records))
    return other


def with_a_lost_trial(world: World, *end: AnyRecord) -> list[AnyRecord]:
    """The records of the run, with trial 2 lost, except the last one, and then `end`."""
    failure = Failure(FailureKind.LOST, "again and again")
    return [
        TrialConcluded(trial=each.trial, status=TrialStatus.LOST, failure=failure)
        if isinstance(each, TrialConcluded) and each.trial == 2
        else each
        for each in records(world.store)[:-1]
    ] + list(end)


def records(store: Store) -> tuple[AnyRecord, ...]:
    return reader.read(store, prepared(TRIALS).definition.layout.journal).records


@pytest.fixture
def done() -> tuple[World, SweepResult]:
    """A run that is complete."""
    world = World()
    return world, driven(world, prepared(TRIALS))[0]


def changed(run: CheckedCall, space: Space | None = None, **spec: Any) -> CheckedCall:
    """The run of another call."""
    definition = run.definition
    new, space = replace(definition.spec, **spec), space or definition.space
    definition = replace(definition.with_spec(new), space=space).with_plan(space=to_document(space, new.trials))
    return replace(run, definition=definition)


# ---- nothing left to do


def test_a_complete_run_gives_its_result_without_agents(done: tuple[World, SweepResult]) -> None:
    world, first = done
    files = dict(world.store.files)
    assert str(finished(attached(world))) == str(first)
    assert finished(attached(world)) == first
    assert world.store.files == files


@pytest.mark.parametrize("left", [None, b"{}"])
def test_results_that_are_missing_or_of_another_driver_are_written(
    done: tuple[World, SweepResult], left: bytes | None
) -> None:
    world, first = done
    path = prepared(TRIALS).definition.layout.results
    content = world.store.files.pop(path)
    if left is not None:
        world.store.files[path] = left
    assert finished(attached(world)) == first
    assert world.store.files[path] == content


def test_a_deposed_driver_replaces_no_results(done: tuple[World, SweepResult]) -> None:
    world, _ = done
    run = attached(world)
    journal, _ = Journal.claim(world.store, run.definition.layout.journal, OTHER)
    Journal.claim(world.store, run.definition.layout.journal, OTHER)
    world.store.files[run.definition.layout.results] = b"newer"
    ran = RunOutcome((), EndRun(RunId("sweep"), Ending.COMPLETE, ""), 1.0)
    with pytest.raises(DeposedError):
        result(run.definition, ran, journal)
    assert world.store.files[run.definition.layout.results] == b"newer"


def test_the_next_driver_records_the_end_of_a_finished_run(done: tuple[World, SweepResult]) -> None:
    world, first = done
    died = with_journal(world, [each for each in records(world.store) if not isinstance(each, RunEnded)])
    made = finished(attached(died))
    assert made is not None
    assert made.trials == first.trials
    assert made.status is SweepStatus.SUCCEEDED
    assert isinstance(records(died.store)[-1], RunEnded)
    assert finished(attached(died)) == made


def test_a_lost_trial_is_retried(done: tuple[World, SweepResult]) -> None:
    world, first = done
    again = with_journal(world, with_a_lost_trial(world, *records(world.store)[-1:]))
    assert finished(attached(again)) is None
    made, _ = driven(again, prepared(TRIALS))
    assert [trial.metrics for trial in made.trials] == [trial.metrics for trial in first.trials]
    assert [trial for trial, _ in again.started] == [2]


def test_failed_trials_are_retried_on_request(done: tuple[World, SweepResult]) -> None:
    world, _ = done
    run = with_rules(prepared(TRIALS), retry_failed=True)
    assert finished(attached(world, run)) is None
    world.again = {3}
    made, _ = driven(world, run)
    assert [trial.generations for trial in made.trials] == [1, 1, 1, 2, 1, 1]


def test_a_function_that_no_executor_could_load_is_no_result(done: tuple[World, SweepResult]) -> None:
    world, _ = done
    added = [each for each in records(world.store) if isinstance(each, TrialsAdded | DriverStarted)]
    failure = Failure(FailureKind.LOAD, "no module")
    failed = TrialConcluded(trial=TrialId(0), status=TrialStatus.FAILED, failure=failure)
    unloadable = with_journal(world, [*added, failed, RunEnded(ending=Ending.UNLOADABLE)])
    assert finished(attached(unloadable)) is None
    unloadable.again = {0}
    made, _ = driven(unloadable, prepared(TRIALS))
    assert made.trials[0].status is TrialStatus.SUCCEEDED


# ---- more, and other trials


def test_more_trials_run_and_none_of_the_first_is_repeated() -> None:
    world = World()
    first, _ = driven(world, changed(prepared(TRIALS), trials=4))
    assert len(first.trials) == 4
    assert finished(attached(world)) is None
    made, _ = driven(world, prepared(TRIALS))
    assert made.trials[:4] == first.trials
    assert [trial for trial, _ in world.started] == list(range(TRIALS))
    assert finished(attached(world)) == made


def test_old_results_stay_until_there_are_new_ones() -> None:
    world, path = World(), prepared(TRIALS).definition.layout.results
    driven(world, changed(prepared(TRIALS), trials=4))
    before = world.store.files[path]
    requested(in_store(prepared(TRIALS), world.store), driver=OTHER)
    assert world.store.files[path] == before, "a reader always finds a whole file"
    made, _ = driven(world, prepared(TRIALS))
    assert len(made.trials) == TRIALS
    assert sweep_result(from_json(json.loads(world.store.files[path]))) == made


def test_fewer_trials_remove_no_result(done: tuple[World, SweepResult]) -> None:
    world, first = done
    made, _ = driven(world, changed(prepared(TRIALS), trials=2))
    assert made.trials == first.trials


def test_another_space_is_refused_and_where_allowed_only_new_cases_run(
    done: tuple[World, SweepResult],
) -> None:
    world, first = done
    run = changed(prepared(TRIALS), grid(x=[0, 1, 2, 100, 101]), trials=None)
    with pytest.raises(ResumeError, match="started with other space"):
        attached(world, run)
    run = with_rules(run, allow_changed=frozenset({"space"}))
    assert finished(attached(world, run)) is None
    made, _ = driven(world, run)
    assert made.trials[:TRIALS] == first.trials
    assert [trial.params["x"] for trial in made.trials[TRIALS:]] == [100, 101]
    assert finished(attached(world, run)) == made


# ---- who is on it


def test_a_driver_that_answers_is_left_alone(done: tuple[World, SweepResult], monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = done
    running = with_journal(world, records(world.store)[:-1])
    monkeypatch.setattr(history, "answers", lambda driver: driver == OTHER)
    with pytest.raises(RunDirectoryError, match=r"in use: process 7 on other has owned this run since 19\d\d-"):
        attached(running)
    same = attach(in_store(prepared(TRIALS), running.store), driver=OTHER)
    assert same.stored_run is not None, "it is this pool that asks, and it is on no run"
    attached(world)


FIRST, SECOND = (structs.replace(OTHER, application="1_0001", attempt=attempt) for attempt in (1, 2))


def test_a_driver_that_yarn_has_replaced_is_not_asked(
    done: tuple[World, SweepResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = done
    running = with_journal(world, records(world.store)[:-1], FIRST)
    monkeypatch.setattr(history, "answers", lambda driver: True)
    another = structs.replace(SECOND, application="1_0002", fingerprint="g")
    with pytest.raises(RunDirectoryError, match="in use"):
        attach(in_store(prepared(TRIALS), running.store), driver=another)
    assert attach(in_store(prepared(TRIALS), running.store), driver=SECOND).replaces


@pytest.mark.parametrize("ending", [Ending.STOPPED, Ending.FAILING])
def test_a_driver_of_a_new_yarn_attempt_does_not_restart_a_stopped_run(
    done: tuple[World, SweepResult], monkeypatch: pytest.MonkeyPatch, ending: Ending
) -> None:
    lost = with_journal(done[0], with_a_lost_trial(done[0], RunEnded(ending=ending, reason="why")), FIRST)
    monkeypatch.setenv("CONTAINER_ID", "container_e07_1_0001_02_000001")
    run = in_store(with_rules(prepared(TRIALS), retry_failed=True), lost.store)
    made = finished(attach(run))
    assert made is not None
    assert (made.status, made.reason) == (SweepStatus.LOST, "why")
    assert [each.status for each in made.trials].count(TrialStatus.LOST) == 1
    assert finished(attach(run)) is None, "the program's next call for the run is a new one"


@pytest.mark.parametrize("ending", [Ending.TARGET, Ending.PLATEAU, Ending.BUDGET])
def test_a_run_that_has_what_it_was_asked_for_continues_only_with_another_wish(
    done: tuple[World, SweepResult], ending: Ending
) -> None:
    kept = with_journal(done[0], with_a_lost_trial(done[0], RunEnded(ending=ending, reason="enough")), FIRST)
    run = in_store(prepared(TRIALS), kept.store)
    made = finished(attach(run))
    assert made is not None
    assert (made.reason, finished(attach(with_rules(run, retry_failed=True)))) == ("enough", None)
    more = run.with_spec(replace(run.definition.spec, target=99.0))
    assert finished(attach(more)) is None


SATISFIED = [Ending.TARGET, Ending.PLATEAU, Ending.BUDGET]


@pytest.mark.parametrize(
    "ending", [*(each for each in Ending if each not in (Ending.STOPPED, Ending.FAILING, *SATISFIED)), None]
)
def test_a_driver_of_a_new_yarn_attempt_resumes_an_unfinished_run(
    done: tuple[World, SweepResult], ending: Ending | None
) -> None:
    end = [RunEnded(ending=ending)] if ending is not None else []
    lost = with_journal(done[0], with_a_lost_trial(done[0], *end), FIRST)
    assert finished(attach(in_store(prepared(TRIALS), lost.store), driver=SECOND)) is None


def test_a_later_call_of_the_program_with_another_space_runs_more_trials(
    done: tuple[World, SweepResult],
) -> None:
    ended = with_journal(done[0], records(done[0].store), FIRST)
    more = in_store(with_rules(prepared(TRIALS + 1), allow_changed=frozenset({"space"})), ended.store)
    assert finished(attach(more, driver=SECOND)) is None


def test_only_one_yarn_attempt_retries_failed_trials(
    done: tuple[World, SweepResult],
) -> None:
    ended = with_journal(done[0], records(done[0].store), FIRST)
    run = in_store(with_rules(prepared(TRIALS), retry_failed=True), ended.store)
    second = attach(run, driver=SECOND)
    assert second.retry_failed, "the one before had another call"
    starts = [
        structs.replace(second.driver_started, plan=each.plan)
        for each in records(ended.store)
        if isinstance(each, DriverStarted)
    ]
    killed = in_store(run, with_journal(done[0], [*records(ended.store), *starts], FIRST).store)
    assert not attach(killed, driver=SECOND).retry_failed
    assert attach(killed, driver=FIRST).retry_failed


@pytest.mark.parametrize(
    ("container", "found"),
    [
        ("container_1795280325843_0001_02_000001", ("1795280325843_0001", 2)),
        ("container_e17_1795280325843_0012_01_000001", ("1795280325843_0012", 1)),
        ("", ("", 0)),
        ("of docker", ("", 0)),
    ],
)
def test_a_driver_in_a_container_of_yarn_knows_its_application(
    container: str, found: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_ID", container)
    this = history.this_driver()
    assert (this.application, this.attempt) == found
    assert not this.replaces(OTHER)


def test_a_driver_without_an_address_does_not_answer() -> None:
    for address in ("", "nowhere", ":1", "localhost:x", "127.0.0.1:1"):
        assert not history.answers(structs.replace(OTHER, address=address))


async def test_asking_whether_a_driver_answers_logs_nothing_there(capfd: pytest.CaptureFixture[str]) -> None:
    """gRPC writes a line to the driver's stderr for each connection that it refuses."""
    certificates = issue("run")
    listener = GrpcListener("127.0.0.1", [0], certificates.server)
    host, port = await listener.start(never_called, never_called)
    here = structs.replace(OTHER, address=f"{host}:{port}")
    mine = structs.replace(here, fingerprint=server_fingerprint(certificates.server.certificate))
    try:
        assert [await asyncio.to_thread(history.answers, who) for who in (mine, here)] == [True, False]
    finally:
        await listener.close(1.0)
    assert capfd.readouterr().err == ""


def test_a_listener_that_accepts_and_stays_silent_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert not history.answers(structs.replace(OTHER, address=address), timeout_s=0.05)


async def never_called(*arguments: Any) -> Any:
    raise AssertionError(arguments)


def test_one_of_two_concurrent_first_drivers_is_refused() -> None:
    store = MemoryStore()
    first, second = (attach(in_store(prepared(TRIALS), store)) for _ in range(2))
    take_name(first)
    with pytest.raises(RunDirectoryError, match="at the same time"):
        take_name(second)


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}"])
def test_a_folder_of_another_program_is_refused(content: bytes) -> None:
    world = World()
    world.store.put_if_absent(prepared(TRIALS).definition.layout.spec, content)
    with pytest.raises(RunDirectoryError, match="run"):
        attached(world)


def test_a_random_seed_is_kept(done: tuple[World, SweepResult]) -> None:
    world, _ = done
    run = changed(prepared(TRIALS), seed=99)
    assert attached(world, with_rules(run, seeded=False)).definition.spec.seed == 1
    with pytest.raises(ResumeError, match="other seed"):
        attached(world, run)


# ---- samplers


def test_a_sampler_observes_what_the_one_before_observed() -> None:
    world = World()
    driven(world, prepared(TRIALS, learning=True))
    found = history.past(records(world.store), "y")
    made = [each for each in found if isinstance(each, PastSuggestion)]
    assert [each.first for each in made] == list(accumulate([0, *(len(each.cases) for each in made)]))[:-1]
    for index, each in enumerate(found):
        if isinstance(each, PastSuggestion):
            restored = Climber(TRIALS)
            restored.restore(found[:index])
            asked = next(a for a in records(world.store) if isinstance(a, TrialsAdded) and a.cases == each.cases).asked
            assert restored.suggest(asked) == Suggestion(each.cases, each.exhausted, each.memo)


def test_a_failed_trial_is_observed_without_metrics_and_one_that_is_retried_twice() -> None:
    added = TrialsAdded(cases=({"x": 1}, {"x": 2}), exhausted=True, asked=2, observed=0)
    failed = TrialConcluded(trial=TrialId(1), status=TrialStatus.FAILED, metrics={"y": 1.0})
    stopped = TrialConcluded(trial=TrialId(0), status=TrialStatus.STOPPED)
    again = TrialConcluded(trial=TrialId(1), status=TrialStatus.SUCCEEDED, metrics={"y": 2.0})
    assert history.past([added, failed, stopped, again], "y") == [
        PastSuggestion(TrialId(0), added.cases, True),
        Observation(TrialId(1), {"x": 2}, ObservedStatus.FAILED, {}),
        Observation(TrialId(1), {"x": 2}, ObservedStatus.SUCCEEDED, {"y": 2.0}),
    ]


class Failing(Climber):
    """Raises when it has observed a trial from the second one on."""

    def observe(self, observation: Observation) -> None:
        super().observe(observation)
        if observation.trial >= 1:
            raise ZeroDivisionError("no density")


def test_a_sampler_that_raises_ends_the_sweep_with_its_traceback_and_a_correct_one_resumes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, run = World(), prepared(TRIALS, learning=True)
    monkeypatch.setattr(type(run.definition), "new_sampler", lambda self, slots=1: Failing(TRIALS))
    with pytest.raises(
        SamplerError, match="raised ZeroDivisionError when it was given the result of trial 1"
    ) as raised:
        driven(world, run)
    assert "no density; the run is stopped and keeps its results" in str(raised.value)
    assert 'raise ZeroDivisionError("no density")' in str(raised.value), "the line that raised"
    assert "concurrent" not in str(raised.value), "the sampler's frames alone"
    end = records(world.store)[-1]
    assert isinstance(end, RunEnded)
    assert end.ending == Ending.STOPPED
    assert end.reason.startswith("the sampler raised ZeroDivisionError when it was given the result of trial 1")
    assert "\n" not in end.reason
    done = [each.trial for each in records(world.store) if isinstance(each, TrialConcluded) and each.status.observed]
    monkeypatch.setattr(type(run.definition), "new_sampler", lambda self, slots=1: Climber(TRIALS))
    world.started.clear()
    made, _ = driven(world, run)
    assert len(made.trials) == TRIALS
    assert not {trial for trial, _ in world.started} & set(done)
