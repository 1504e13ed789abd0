"""What happens to each training of the matrix, shown by the least program that it has: see `tests.trainings`."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.driver.engines import local_batch
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from sparktrain.state.gangs import timeouts
from sparktrain.state.gangs.step_times import SlowCause
from sparktrain.state.outcome import Restart
from tests import trainings
from tests.faults.test_draining import agent_of
from tests.faults.test_loops import LOOPS
from tests.support import least_programs
from tests.support.fits import FITS
from tests.support.least_programs import LOSER, SLOWER_S, WORKERS
from tests.support.process_cluster import coordinators, run_in_cluster
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(400)
SOON_S = 150.0
"""A guard against a test that hangs."""
LEAST = pytest.mark.all(
    case="each training with a member that hangs or is slow, on a drained agent, or that loses its driver",
    covered_by="trainings of one kind; `unit/state/test_hangs`, `unit/state/test_draining`, `unit/state/test_adoption`",
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A row of the matrix."""

    program: Callable[..., Any]
    preload: tuple[str, ...]
    options: Mapping[str, Any]
    """Those of its run."""
    params: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[pytest.MarkDecorator, ...] = ()

    @property
    def slots(self) -> int:
        """Those that its members take."""
        return int(self.options["workers"]) + int(self.options.get("ps", 0))


TENSORFLOW = ("tensorflow", "keras", "horovod.tensorflow")
SERVED = {"workers": WORKERS, "ps": 1}
PARTS = {"keras": "KerasResizing", "jax": "JaxResizing", "torch": "TorchResizing"}
"""The class with the parts of the loop of each framework."""
TRAININGS = {
    **{
        name: Training(
            program=least_programs.fit,
            preload=fit.preload,
            options={"workers": WORKERS, **fit.options},
            marks=fit.marks,
        )
        for name, fit in FITS.items()
    },
    "Keras `fit`, TensorFlow's ring": Training(
        program=least_programs.fit, preload=TENSORFLOW, options={"workers": WORKERS, "backend": "tensorflow"}
    ),
    **{
        name: Training(
            program=least_programs.loop,
            preload=loop.preload,
            options={"workers": WORKERS, "backend": loop.backend},
            params={"module": loop.module, "name": PARTS[loop.name]},
            marks=loop.marks,
        )
        for name, loop in LOOPS.items()
    },
    "loop of arrays": Training(
        program=least_programs.arrays, preload=TENSORFLOW, options={"workers": WORKERS, "backend": "horovod"}
    ),
    "parameter servers": Training(
        program=least_programs.fit, preload=TENSORFLOW, options={**SERVED, "backend": "parameter-server"}
    ),
    "sessions of TensorFlow 1": Training(program=least_programs.session, preload=TENSORFLOW, options=SERVED),
    "`tf.distribute`": Training(program=least_programs.strategy, preload=TENSORFLOW, options=SERVED),
    "boosting": Training(program=least_programs.boost, preload=("xgboost", "pandas"), options={"workers": 1}),
}
"""By the names of the matrix."""


def run_for(cells: Sequence[dict[str, str]]) -> Any:
    """Runs a test for the trainings with these cells, with the words of the cells."""
    cases = [
        pytest.param(cell["training"], cell["word"], id=cell["training"], marks=TRAININGS[cell["training"]].marks)
        for cell in cells
    ]
    return pytest.mark.parametrize(("training", "word"), cases, indirect=["training"], scope="module")


def shown(test: Any) -> Any:
    """Runs a test for the trainings with a cell in the matrix that names it."""
    node = f"faults/test_least_trainings::{test.__name__}"
    cells = [cell for cell in trainings.cells() if cell["test"] == node]
    assert cells, f"tests/trainings.csv names {test.__name__} nowhere"
    return run_for(cells)(LEAST(test))


@pytest.fixture(scope="module")
def training(request: pytest.FixtureRequest) -> Training:
    """The row."""
    return TRAININGS[request.param]


@pytest.fixture(scope="module")
def pool(training: Training) -> Iterator[st.Pool]:
    """Warm agents for its members, and one more."""
    with st.pool(st.local(slots=training.slots + 1), preload=training.preload) as opened:
        yield opened


def planned(training: Training, folder: Path, **plan: Any) -> dict[str, Any]:
    """The parameters of its program."""
    steps = {"steps": 30, "step_s": 0.05, "slow": False, "hang_at": 0}
    return {"folder": str(folder), **training.params, **steps, **plan}


def run(pool: st.Pool, training: Training, folder: Path, params: dict[str, Any], **options: Any) -> Any:
    """Train to the end; returns the result. Boosting is a trial of a sweep."""
    place: dict[str, Any] = {"dir": str(folder / "runs"), "name": "run", "progress": False, "seed": 1}
    if training.slots > 1:
        return pool.run(training.program, params, **place, **training.options, **options)
    space = {name: [value] for name, value in params.items()}
    [trial] = pool.sweep(training.program, space, metric="y", mode="max", **place, **options).trials
    return trial


def steps_in(folder: Path, rank: int) -> dict[int, int]:
    """The newest step of each process that a rank has had, by its id."""
    paths = folder.glob(f"steps-{rank}-*")
    return {int(path.name.rpartition("-")[2]): int(path.read_text() or 0) for path in paths}


def trains(folder: Path, ranks: int, least: int = 10) -> bool:
    """Whether the first process of each rank has made some steps."""
    return all(max(steps_in(folder, rank).values(), default=0) >= least for rank in range(ranks))


@shown
def test_a_member_in_an_endless_loop_is_ended(pool: st.Pool, training: Training, word: str, tmp_path: Path) -> None:
    params = planned(training, tmp_path, steps=60, hang_at=30)  # a member that has reported its pace
    result = run(pool, training, tmp_path, params, hang_timeout="3s")
    if word == "fails":
        assert (result.status, result.error.kind) == ("failed", "hang")
        return
    [restart] = result.restarts
    assert (restart.kind, restart.alone, restart.healed) == ("hang", word == "alone", False), restart.cause
    assert restart.rank == min(LOSER, training.slots - 1) or word == "restarts"


@LEAST
# The members of a strategy, but for its chief, run none of its functions.
@run_for([cell for cell in trainings.cells() if cell["event"] == "lost" and cell["training"] != "`tf.distribute`"])
def test_a_process_that_is_stopped_by_a_signal_is_lost(
    pool: st.Pool, training: Training, word: str, tmp_path: Path
) -> None:
    loser = min(LOSER, training.slots - 1)

    def stop() -> None:
        psutil.Process(next(iter(steps_in(tmp_path, loser)))).suspend()

    [restart] = beside(pool, training, tmp_path, loser + 1, stop, 240)
    assert "was stopped by a signal" in restart.cause
    assert (restart.kind, restart.rank) == ("lost", loser)
    assert (restart.healed, restart.alone) == (word == "heals", word in ("heals", "alone")), restart.cause


@shown
def test_a_slow_member_is_named(pool: st.Pool, training: Training, word: str, tmp_path: Path) -> None:
    run(pool, training, tmp_path, planned(training, tmp_path, steps=40, step_s=0.03, slow=True))
    [trial] = Observer(run_in(str(tmp_path / "runs" / "run")), SystemClock()).look().trials
    assert trial.step_times is not None
    slow = trial.step_times.slow
    assert slow is not None
    assert (slow.rank, slow.cause) == (LOSER, SlowCause.COMPUTE)
    waits = [times.wait_s for times in trial.step_times.members]
    assert waits[0] - waits[LOSER] > SLOWER_S / 2


@shown
def test_a_training_that_loses_its_coordinator(training: Training, word: str, tmp_path: Path) -> None:
    params = planned(training, tmp_path, steps=24, step_s=0.5)
    options = {"slots": training.slots + 1, "preload": list(training.preload), **training.options}
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run_in_cluster, training.program, params, tmp_path, **options)
        wait_until(lambda: running.done() or trains(tmp_path, 1, least=3), SOON_S, "it trains")
        assert not running.done(), running.result().trials
        [coordinator] = coordinators()
        coordinator.kill()
        [trial] = running.result(SOON_S).trials
    assert trial.status == "succeeded", trial.error
    assert len(trial.restarts) == (word == "resumes"), trial.restarts
    assert len(steps_in(tmp_path, 0)) == 1 + len(trial.restarts), "the chief keeps its process"


def beside(
    pool: st.Pool, training: Training, folder: Path, ranks: int, act: Callable[[], None], steps: int, **options: Any
) -> tuple[Restart, ...]:
    """The restarts of a training of so many steps, beside which a thread acts once the first `ranks` members train."""
    ended = threading.Event()

    def wait() -> None:
        wait_until(lambda: ended.is_set() or trains(folder, ranks), SOON_S, "it trains")
        act()

    with ThreadPoolExecutor(1) as threads:
        acted = threads.submit(wait)
        try:
            result = run(pool, training, folder, planned(training, folder, steps=steps), **options)
        finally:
            ended.set()
        acted.result(SOON_S)
    return result.restarts  # type: ignore[no-any-return]


@shown
def test_a_training_on_a_drained_agent(pool: st.Pool, training: Training, word: str, tmp_path: Path) -> None:
    def leave() -> None:
        loser = min(LOSER, training.slots - 1)
        drain(run_in(str(tmp_path / "runs" / "run")), None, agent_of(pool, 0, loser).slot)

    restarts = beside(pool, training, tmp_path, 1, leave, 120)
    assert [restart.drained for restart in restarts] == [True]
    # Members beside servers have no common step: what they have trained after the chief's checkpoint is repeated.
    assert restarts[0].steps_lost in range(1 if training.slots <= WORKERS else 10)


@shown
def test_a_training_resumes_from_the_memory_of_its_members(
    pool: st.Pool, training: Training, word: str, tmp_path: Path
) -> None:
    def kill() -> None:
        psutil.Process(next(iter(steps_in(tmp_path, LOSER)))).kill()

    [restart] = beside(pool, training, tmp_path, WORKERS, kill, 60)
    assert restart.rank == LOSER
    assert restart.resumed_from_step
    assert not list((tmp_path / "runs").rglob("manifest*"))


@shown
def test_a_training_with_fewer_members_for_a_while(
    training: Training, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(restarts: local_batch.Restarts, slot: int, now: float) -> bool:
        restarts._lives[slot].due = now + 4.0
        return True

    monkeypatch.setattr(timeouts, "REPLACEMENT_S", 0.0)
    monkeypatch.setattr(timeouts, "COOLDOWN_S", 1.0)
    monkeypatch.setattr(local_batch.Restarts, "lost", later)

    def kill() -> None:
        psutil.Process(next(iter(steps_in(tmp_path, LOSER)))).parents()[1].kill()

    with st.pool(st.local(slots=training.slots), preload=training.preload) as pool:
        shrinks, grows = beside(pool, training, tmp_path, WORKERS, kill, 400, min_workers=1)
    assert (shrinks.rank, shrinks.healed, shrinks.paused) == (LOSER, False, False), shrinks.cause
    assert (grows.healed, grows.paused, grows.steps_lost) == (False, True, 0), grows.cause
    assert grows.cause == f"grows to {WORKERS} members: agents are there again"
