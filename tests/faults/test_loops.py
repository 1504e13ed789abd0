"""Loops in rings that lose members, of each framework. The matrix of trainings chooses which loops a test runs for.

The others keep their processes, and all end with the bits of no loss. Where no process replaces a lost one they
continue with fewer members.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import SystemClock
from sparktrain.config.option_catalog import BackendName
from sparktrain.driver.engines import local_batch
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from sparktrain.runs.watcher import Observer
from sparktrain.state.gangs import timeouts
from tests import trainings
from tests.faults.test_draining import agent_of
from tests.support.healed_members import Members, members_in
from tests.support.loops import STEPS
from tests.support.processes import wait_until
from tests.support.resizing import GO, check_rows, check_weights
from tests.support.resizing import STEPS as RESIZED_STEPS
from tests.support.standby_kills import kill_each

pytestmark = pytest.mark.timeout(240)
SOON_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A loop of a framework. `module` has its `train`, `resize` and `repeat`, and is imported where a test runs it."""

    name: str
    backend: BackendName
    preload: tuple[str, ...]
    module: str
    bias: str
    """What an error calls the bias that a test changes."""
    of_sender: str = "of no variable"
    """In the names of variables that a process has from another member: they need not be those of its rank."""
    reads: tuple[str, ...] = ()
    """How its function may read its rank: see `tests.support.loops.RANKS`."""
    marks: tuple[pytest.MarkDecorator, ...] = ()
    obstacles: tuple[tuple[str, str], ...] = ()
    """The ways of loops that no process can join, with the first words of the reason."""

    def function(self, name: str) -> Callable[..., Any]:
        """One of the functions of its module."""
        return getattr(import_module(self.module), name)  # type: ignore[no-any-return]

    def unequal(self, variables: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
        """The variables with other bits."""
        return [name for name in variables if variables[name] != expected[name] and self.of_sender not in name]


LOOPS = {
    "loop of Keras, Horovod": Framework(
        name="keras",
        backend="horovod",
        preload=("tensorflow", "keras", "horovod.tensorflow"),
        module="tests.faults.keras_loops",
        bias=r"\S*dense/bias",
        obstacles=(("late", "the step changes sparse_categorical_accuracy"),),
    ),
    "loop of JAX": Framework(
        name="jax",
        backend="jax",
        preload=("jax",),
        module="tests.faults.jax_loops",
        bias="state/weights/bias",
        reads=("jax",),
        marks=(pytest.mark.all(case="loops of JAX that heal", covered_by="loops of Keras that heal"),),
        obstacles=(
            ("donates", "train_step donates its arguments"),
            ("early", "a program over the devices of all members"),
        ),
    ),
    "loop of PyTorch": Framework(
        name="torch",
        backend="torch",
        preload=("torch",),
        module="tests.torch.torch_loops",
        bias="0.bias",
        of_sender="running",  # DDP averages no statistics of a layer
        reads=("group", "environment"),
        marks=(pytest.mark.torch,),
    ),
}
"""By the names of the matrix."""


def run_for(names: Sequence[str]) -> Any:
    """Runs a test for the loops with these names."""
    loops = [pytest.param(LOOPS[name], id=LOOPS[name].name, marks=LOOPS[name].marks) for name in names]
    return pytest.mark.parametrize("framework", loops, indirect=True, scope="module")


def shown(test: Any) -> Any:
    """Runs a test for the loops with a cell in the matrix that names it."""
    names = trainings.shown_by(f"faults/test_loops::{test.__name__}")
    assert names, f"tests/trainings.csv names {test.__name__} nowhere"
    return run_for(names)(test)


each_loop = run_for([*LOOPS])
OTHERS = pytest.mark.all(
    case="loops that heal with eager steps, or with an optimizer that averages, and of three members",
    covered_by="a loop with a traced tape that loses each of two members",
)
STANDBY = pytest.mark.all(
    case="a process that waits for a place in a loop",
    covered_by="`faults/test_standbys`: one that waits for a place in a fit; loops that heal",
)
SPOILT = pytest.mark.all(
    case="other weights in a loop, after a loss",
    covered_by="at its end; `faults/test_healing_fits`: in a fit, after a loss",
)
SMALLER = pytest.mark.all(
    case="a loop of three that becomes smaller for good, also after a step, and where a member is a step ahead",
    covered_by="a loop of three that becomes smaller for a while",
)


@pytest.fixture(scope="module")
def framework(request: pytest.FixtureRequest) -> Framework:
    """The framework of the loop."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def three(framework: Framework) -> Iterator[st.Pool]:
    """Three warm agents on this machine, for this framework."""
    with st.pool(st.local(slots=3), preload=framework.preload) as pool:
        yield pool


def trained(
    pool: st.Pool, framework: Framework, folder: Path, size: int, kills: list[Any], standby: int = 0, **options: Any
) -> tuple[st.RunResult, Members, int]:
    """The result, the members without the numbers of their processes, and how many processes there were."""
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    params = {"folder": str(notes), "kills": list(map(list, kills)), "way": "tape", **options}
    result = pool.run(
        framework.function("train"), params, workers=size, standby=standby, backend=framework.backend, dir=str(folder),
        name="run", seed=1, progress=False,
    )  # fmt: skip
    members, processes = members_in(notes, size)
    return result, [(variables, facts | {"pid": 0}) for variables, facts in members], processes


@pytest.fixture(scope="module")
def undisturbed(
    three: st.Pool, framework: Framework, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int, str], Members]:
    """The members of a gang without a loss, by its size and by how it averages."""

    @cache
    def members(size: int, way: str) -> Members:
        folder = tmp_path_factory.mktemp("undisturbed")
        result, trained_members, processes = trained(three, framework, folder, size, [], way=way)
        assert not result.restarts
        assert processes == size
        return trained_members

    return members


def check_bits(framework: Framework, members: Members, expected: Members) -> None:
    """Each member has ended as its rank of a gang without a loss."""
    for (variables, facts), (expected_variables, expected_facts) in zip(members, expected, strict=True):
        assert not framework.unequal(variables, expected_variables)
        assert facts == expected_facts
        assert facts["step"] == STEPS


def check_healed(result: st.RunResult, ranks: Sequence[int]) -> None:
    """The ring has healed for each of these ranks in turn, and no step is repeated."""
    healed = [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts]
    assert healed == [(rank, True, 0) for rank in ranks], [restart.cause for restart in result.restarts]


@shown
@pytest.mark.parametrize(
    ("size", "way", "every", "kills"),
    [
        (2, "tape", "auto", [(1, "before", 5), (0, "after", 12), (1, "end", 18)]),
        pytest.param(2, "tape", "0.001s", [(1, "later", 4), (0, "end", 5), (1, "after", 6)], marks=OTHERS),
        pytest.param(2, "eager", "auto", [(1, "within", 5), (0, "within", 9), (1, "applying", 13)], marks=OTHERS),
        pytest.param(2, "eager", "0.001s", [(1, "later", 5), (0, "later", 13), (1, "before", 25)], marks=OTHERS),
        pytest.param(2, "optimizer", "0.001s", [(0, "later", 5), (1, "end", 15), (1, "later", 18)], marks=OTHERS),
        pytest.param(3, "tape", "0.001s", [(1, "later", 6), (2, "later", 10), (0, "later", 15)], marks=OTHERS),
        pytest.param(3, "eager", "0.001s", [(2, "within", 6), (0, "after", 10), (1, "end", 15)], marks=OTHERS),
        pytest.param(3, "eager", "auto", [(1, "applying", 6), (2, "lag", 6)], marks=OTHERS),
        pytest.param(3, "eager", "0.001s", [(0, "applying", 6), (1, "lag", 6)], marks=OTHERS),
        # Lost in the step in which another process has joined, and then in one that a member repeats for others.
        pytest.param(3, "eager", "0.001s", [(2, "within", 8), (1, "call 2", 8)], marks=OTHERS),
        pytest.param(3, "eager", "0.001s", [(1, "applying", 6), (2, "lag", 6), (1, "call 1", 6)], marks=OTHERS),
    ],
)
def test_the_others_train_on_when_a_member_is_killed(
    three: st.Pool,
    framework: Framework,
    tmp_path: Path,
    undisturbed: Callable[[int, str], Members],
    size: int,
    way: str,
    every: str,
    kills: list[tuple[int, str, int]],
) -> None:
    result, members, processes = trained(three, framework, tmp_path, size, kills, way=way, every=every)

    check_healed(result, [rank for rank, moment, _ in kills if moment != "lag"])
    assert processes == size + len(result.restarts), "only the lost processes were replaced"
    check_bits(framework, members, undisturbed(size, way))


@OTHERS
@run_for(["loop of PyTorch"])
def test_no_member_trains_on_before_the_driver_knows_that_all_have_joined(
    three: st.Pool, framework: Framework, tmp_path: Path, undisturbed: Callable[[int, str], Members]
) -> None:
    # Rank 1 is lost in the first step in which the next process of rank 2 trains. The agent of rank 1 reports the loss
    # at once, the report of rank 2 is late.
    kills = [(2, "within", 8), (1, "call 2", 8)]
    result, members, processes = trained(three, framework, tmp_path, 3, kills, way="eager", every="0.001s", delays=True)
    check_healed(result, [2, 1])
    assert processes == 5
    check_bits(framework, members, undisturbed(3, "eager"))


@each_loop
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([(1, "before", 5), (1, "spoil", 5)], id="healed", marks=SPOILT),
        pytest.param([(1, "spoil", STEPS)], id="end"),
    ],
)
def test_members_with_other_weights_end_with_an_error_that_names_the_variable(
    three: st.Pool, framework: Framework, tmp_path: Path, kills: list[Any]
) -> None:
    with pytest.raises(st.RunFailedError, match=f"rank 1 differs from the others in '{framework.bias}': the members"):
        trained(three, framework, tmp_path, 2, kills)


@OTHERS
@pytest.mark.parametrize(
    ("framework", "way", "obstacle"),
    [
        pytest.param(loop, way, obstacle, id=f"{loop.name}-{way}", marks=loop.marks)
        for loop in LOOPS.values()
        for way, obstacle in loop.obstacles
    ],
    indirect=["framework"],
    scope="module",
)
def test_a_loop_that_no_process_can_join_restarts_as_a_whole_and_says_why(
    three: st.Pool, framework: Framework, tmp_path: Path, way: str, obstacle: str
) -> None:
    result, _, processes = trained(three, framework, tmp_path, 2, [(1, "before", 5)], way=way)
    [restart] = result.restarts
    assert not restart.healed
    assert processes == 4
    log = (tmp_path / "run" / "trials" / "0000" / "generation-1" / "rank-0" / "log.txt").read_text()
    assert f"this loop restarts in all of them: {obstacle}" in log


@OTHERS
@each_loop
@pytest.mark.parametrize(
    ("size", "kills"),
    [
        (2, [(0, "together", 12), (1, "together", 12)]),
        (3, [(1, "before", 6), (0, "together", 12), (1, "together", 12)]),
    ],
)
def test_members_that_all_restart_end_with_the_bits_of_no_loss(
    three: st.Pool,
    framework: Framework,
    tmp_path: Path,
    undisturbed: Callable[[int, str], Members],
    size: int,
    kills: list[tuple[int, str, int]],
) -> None:
    result, members, _ = trained(three, framework, tmp_path, size, kills, every="0.001s")

    *healed, restart = result.restarts
    assert all(earlier.healed for earlier in healed)
    assert not restart.healed
    assert restart.resumed_from_step is not None
    check_bits(framework, members, undisturbed(size, "tape"))


def waited(
    pool: st.Pool, framework: Framework, folder: Path, kills: list[int], reads: str = ""
) -> tuple[st.RunResult, Members, int]:
    """See `trained`: members are killed in turn while a process waits for their places."""
    notes = folder / "notes"
    notes.mkdir()
    thread = threading.Thread(target=kill_each, args=(pool, notes, kills))
    thread.start()
    ended = trained(pool, framework, folder, 2, [], standby=1, holds=len(kills), reads=reads)
    thread.join(10)
    check_healed(ended[0], kills)
    return ended


@STANDBY
@shown
@pytest.mark.parametrize("kills", [[1, 0], [0, 1]])
def test_a_process_that_waits_takes_the_place_of_each_member_and_the_bits_are_those_of_no_loss(
    three: st.Pool,
    framework: Framework,
    tmp_path: Path,
    undisturbed: Callable[[int, str], Members],
    kills: list[int],
) -> None:
    _, members, processes = waited(three, framework, tmp_path, kills)

    # At the end a third process may wait.
    assert processes in (4, 5), "the two processes that took places had waited"
    check_bits(framework, members, undisturbed(2, "tape"))
    first, second = kills
    held = [[(tmp_path / "notes" / f"held-{n}-{rank}").read_text() for rank in (0, 1)] for n in (0, 1)]
    assert held[1][second] == held[0][second], "the other member keeps its process"
    assert held[1][first] != held[0][first]
    rows = tmp_path / "notes" / f"rows-{first}-{held[1][first]}.jsonl"
    assert f"[{STEPS}, " in rows.read_text(), "the first process that waited trains to the end"


@STANDBY
@pytest.mark.parametrize(
    ("framework", "reads"),
    [
        pytest.param(loop, how, id=f"{loop.name}-{how}", marks=loop.marks)
        for loop in LOOPS.values()
        for how in loop.reads
    ],
    indirect=["framework"],
    scope="module",
)
def test_a_process_with_a_function_that_has_read_its_rank_takes_the_place_of_that_rank_alone(
    three: st.Pool,
    framework: Framework,
    tmp_path: Path,
    undisturbed: Callable[[int, str], Members],
    reads: str,
) -> None:
    _, members, _ = waited(three, framework, tmp_path, [1, 0], reads)

    check_bits(framework, members, undisturbed(2, "tape"))
    notes = tmp_path / "notes"
    for rank in (0, 1):
        [last] = [path for path in notes.glob(f"rows-{rank}-*") if f"[{STEPS}, " in path.read_text()]
        assert (notes / f"rank-{last.stem[5:]}").exists(), "each process has the rank that its function has read"


def resized(
    framework: Framework,
    folder: Path,
    kills: list[list[int]],
    act: Callable[[st.Pool], None] | None = None,
    agents: st.Pool | None = None,
    **options: Any,
) -> st.RunResult:
    """The result of a gang of three, on `agents` or its own, beside which a thread acts; then one process trains."""
    slots = 3 if act is None else 4
    own: dict[str, Any] = {"dir": str(folder), "progress": False}
    with nullcontext(agents) if agents else st.pool(st.local(slots=slots), preload=framework.preload) as pool:
        thread = threading.Thread(target=act or (lambda _: None), args=(pool,))
        thread.start()
        params = {"folder": str(folder), "kills": kills, **options}
        result = pool.run(
            framework.function("resize"), params, workers=3, min_workers=1, backend=framework.backend, name="run",
            seed=1, **own,
        )  # fmt: skip
        thread.join(SOON_S)
        alone = {"folder": str(folder), "steps": int(result.metrics["steps"])}
        pool.run(framework.function("repeat"), alone, workers=1, name="alone", **own)
    return result


@SMALLER
@shown
def test_the_others_continue_at_once_and_train_each_row_once(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_smaller(framework, tmp_path, monkeypatch, [[2, 8, 1], [1, 15, 0]], [])


@SMALLER
@run_for(["loop of Keras, Horovod", "loop of PyTorch"])
def test_members_that_are_a_step_ahead_repeat_it_with_fewer_members(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_smaller(framework, tmp_path, monkeypatch, [[1, 8, 1]], [2, 8])


def check_smaller(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: list[list[int]], lags: list[int]
) -> None:
    """A gang of three loses members for good, and the others train all rows."""
    monkeypatch.setattr(local_batch.Restarts, "lost", lambda self, slot, now: True)
    result = resized(framework, tmp_path, kills, lags=lags)

    assert [(restart.healed, restart.members, restart.steps_lost) for restart in result.restarts] == [
        (True, 3 - number, 0) for number, _ in enumerate(kills, 1)
    ], [restart.cause for restart in result.restarts]
    assert result.metrics == {"size": 3 - len(kills), "steps": RESIZED_STEPS}
    assert len(list(tmp_path.glob("pid-*"))) == 3, "no process was started"
    check_rows(tmp_path, {3 - number for number in range(len(kills) + 1)})
    check_weights(tmp_path, list(range(3 - len(kills))))


@shown
def test_a_member_comes_back_after_a_step(
    three: st.Pool, framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(restarts: local_batch.Restarts, slot: int, now: float) -> bool:
        restarts._lives[slot].due = now + 2.0
        return True

    monkeypatch.setattr(timeouts, "COOLDOWN_S", 0.5)
    monkeypatch.setattr(local_batch.Restarts, "lost", later)
    result = resized(framework, tmp_path, [[1, 5, 0]], agents=three, step_s=0.1)

    lost, back = result.restarts
    assert (lost.rank, lost.healed, lost.members) == (1, True, 2), lost.cause
    assert (back.rank, back.healed, back.paused, back.steps_lost) == (1, True, True, 0), back.cause
    assert len(list(tmp_path.glob("pid-*"))) == 4, "one process was started"
    check_rows(tmp_path, {2, 3})
    check_weights(tmp_path, [0, 1, 2])


@pytest.mark.all(case="a drained member of a loop moves to another agent", covered_by="a member that comes back")
@shown
def test_a_drained_member_moves_after_a_step(framework: Framework, tmp_path: Path) -> None:
    run = str(tmp_path / "run")

    def noted() -> int:
        return sum(path.read_text().count("\n") for path in tmp_path.glob("steps-*.jsonl"))

    def act(pool: st.Pool) -> None:
        try:
            wait_until(lambda: noted() > 30, SOON_S, "all members train")
            drain(run_in(run), None, agent_of(pool, 0, 1).slot)
            result_of = Observer(run_in(run), SystemClock())
            wait_until(lambda: bool(result_of.look().trials[0].result.restarts), SOON_S, "a member has moved")
        finally:
            (tmp_path / GO).touch()

    result = resized(framework, tmp_path, [], act, step_s=0.1, awaits_go=True)
    [move] = result.restarts
    assert (move.rank, move.drained, move.healed, move.steps_lost) == (1, True, True, 0), move.cause
    assert len(list(tmp_path.glob("pid-*"))) == 4, "one process was started"
    check_rows(tmp_path, {3})
    check_weights(tmp_path, [0, 1, 2])
