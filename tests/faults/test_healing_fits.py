"""A `fit` in a ring that loses members: the others keep process and trace, and all end with the bits of no loss."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from tests.faults.healing_programs import BATCH, EPOCHS, ROWS, train
from tests.faults.test_draining import agent_of
from tests.support.fits import Fit, each_fit, on_horovod, shown
from tests.support.healed_members import Members, members_in

pytestmark = pytest.mark.timeout(240)

OTHERS = pytest.mark.all(
    case="fits that heal by `ctx.shard`, at an epoch's start and end, and of three members; other weights at the end",
    covered_by="a fit on plain arrays that loses each of two members; other weights after a loss",
)


def trained(
    pool: st.Pool,
    fit: Fit,
    folder: Path,
    size: int,
    sharded: bool,
    kills: list[Any],
    lag: int | None = None,
    step_s: float = 0.0,
    every: str | None = "auto",
    cyclic: bool = False,
    **options: Any,
) -> tuple[st.RunResult, Members, int]:
    """The result, the members, and how many processes there were."""
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    params = {"folder": str(notes), "kills": kills, "sharded": sharded, "lag": lag, "step_s": step_s, "every": every}
    params["cyclic"] = cyclic
    result = pool.run(
        train, params, workers=size, dir=str(folder), name="run", seed=1, progress=False, **fit.options, **options
    )
    return result, *members_in(notes, size)


@pytest.fixture(scope="module")
def undisturbed(three: st.Pool, fit: Fit, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, bool], Members]:
    """The members of a gang without a loss, by its size and by whether it trains on `ctx.shard`."""

    @cache
    def members(size: int, sharded: bool) -> Members:
        result, trained_members, _ = trained(three, fit, tmp_path_factory.mktemp("undisturbed"), size, sharded, [])
        assert not result.restarts
        return trained_members

    return members


def expect_each_call_once(folder: Path, size: int) -> None:
    """Callbacks after the one that kills are called once for each step: by the lost process, or by the next one."""
    length = ROWS // BATCH // size
    expected = [[step + 1, step + 1, step % length, True] for step in range(EPOCHS * length)]
    for rank in range(size):
        lines = (folder / "notes" / f"lines-{rank}").read_text().splitlines()
        assert list(map(json.loads, lines)) == expected, f"of rank {rank}"


@shown
@pytest.mark.parametrize(
    ("size", "sharded", "kills"),
    [
        (2, False, [(1, "batch", 5), (0, "joined", 1), (1, "batch", 13)]),
        pytest.param(2, True, [(1, "batch", 5), (0, "joined", 1), (0, "batch", 13)], marks=OTHERS),
        pytest.param(2, False, [(1, "epoch", 12), (0, "start", 12), (1, "epoch", 24)], marks=OTHERS),
        pytest.param(2, True, [(0, "batch", 2), (0, "batch", 3), (0, "epoch", 24)], marks=OTHERS),
        pytest.param(3, False, [(1, "batch", 3), (2, "later", 5), (0, "later", 7)], marks=OTHERS),
        pytest.param(3, True, [(2, "epoch", 8), (0, "epoch", 16)], marks=OTHERS),
    ],
)
def test_the_others_train_on_when_a_member_is_killed(
    three: st.Pool,
    fit: Fit,
    tmp_path: Path,
    undisturbed: Callable[[int, bool], Members],
    size: int,
    sharded: bool,
    kills: list[tuple[int, str, int]],
) -> None:
    result, members, processes = trained(three, fit, tmp_path, size, sharded, list(map(list, kills)))
    if all(event != "later" for _, event, _ in kills):
        expect_each_call_once(tmp_path, size)
    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (rank, True, 0) for rank, _, _ in kills
    ], [restart.cause for restart in result.restarts]
    assert processes == size + len(kills), "only the lost processes were replaced"
    for (variables, facts), (expected_variables, expected_facts) in zip(
        members, undisturbed(size, sharded), strict=True
    ):
        unequal = [name for name in variables if variables[name] != expected_variables[name]]
        assert not unequal
        assert not fit.traces or facts["traces"] == 1, "no process traces its step a second time"
        assert (facts["history"], facts["wait"]) == (expected_facts["history"], expected_facts["wait"])


@each_fit
def test_members_have_equal_weights_where_a_callback_sets_the_rate_by_the_number_of_the_batch(
    three: st.Pool, fit: Fit, tmp_path: Path
) -> None:
    # The members agree after each step: the ring breaks once the callback of the others has set the rate.
    kills = [[1, "batch", 5]]
    result, [(first, _), (second, _)], _ = trained(three, fit, tmp_path, 2, False, kills, every="0.001s", cyclic=True)
    assert [restart.healed for restart in result.restarts] == [True]
    assert not [name for name in first if first[name] != second[name] and "batch_normalization/moving" not in name]


@each_fit
@pytest.mark.parametrize(
    "kills", [[[1, "batch", 5], [1, "spoil", 6]], pytest.param([[1, "spoil", 24]], marks=OTHERS)], ids=["healed", "end"]
)
def test_members_with_other_weights_end_with_an_error_that_names_the_variable(
    three: st.Pool, fit: Fit, tmp_path: Path, kills: list[Any]
) -> None:
    with pytest.raises(st.RunFailedError, match=r"rank 1 differs from the others in '\S*counted/bias': the members"):
        trained(three, fit, tmp_path, 2, False, kills)


@pytest.mark.all(
    case="the bits of a fit with a member that moves to another agent",
    covered_by="the bits of fits that heal; `faults/test_draining`: a member that moves",
)
@shown
@pytest.mark.parametrize(("rank", "sharded"), [(1, False), (0, True)])
def test_a_member_moves_and_the_result_has_the_bits_of_one_that_stays(
    three: st.Pool, fit: Fit, tmp_path: Path, undisturbed: Callable[[int, bool], Members], rank: int, sharded: bool
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    expected = undisturbed(2, sharded)

    def drains() -> None:
        steps = notes / f"steps-{rank}"
        deadline = time.monotonic() + 60
        while not (steps.exists() and int(steps.read_text() or 0) >= 2) and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        drain(run_in(str(tmp_path / "run")), None, agent_of(three, 0, rank).slot)

    thread = threading.Thread(target=drains)
    thread.start()
    result, members, processes = trained(three, fit, tmp_path, 2, sharded, [], step_s=0.6)
    thread.join(60)

    [restart] = result.restarts
    assert (restart.rank, restart.drained, restart.healed, restart.steps_lost) == (rank, True, True, 0)
    assert processes == 3
    for (variables, facts), (expected_variables, expected_facts) in zip(members, expected, strict=True):
        unequal = [name for name in variables if variables[name] != expected_variables[name]]
        assert not unequal
        assert not fit.traces or facts["traces"] == 1, "the process that takes the place has traced its step before"
        assert facts["history"] == expected_facts["history"]


@pytest.mark.all(
    case="one survivor has applied a step, and the other one has not",
    covered_by="survivors that have come equally far",
)
@each_fit
def test_a_survivor_that_is_a_step_behind_ends_with_the_same_bits(
    three: st.Pool, fit: Fit, tmp_path: Path, undisturbed: Callable[[int, bool], Members]
) -> None:
    result, members, processes = trained(three, fit, tmp_path, 3, False, [], lag=4)
    [restart] = result.restarts
    assert (restart.rank, restart.healed, restart.steps_lost) == (2, True, 0), restart.cause
    assert processes == 4
    for (variables, facts), (expected_variables, expected_facts) in zip(members, undisturbed(3, False), strict=True):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert facts["history"] == expected_facts["history"]
    assert not fit.traces or [facts["traces"] for _, facts in members] == [1, 2, 1], (
        "rank 1 has trained the step by itself as well"
    )


@each_fit
@pytest.mark.parametrize(
    "rank",
    [
        0,
        pytest.param(
            1,
            marks=pytest.mark.all(
                case="another member than the chief is lost during a memory checkpoint",
                covered_by="a chief that is lost during one",
            ),
        ),
    ],
)
def test_a_member_is_lost_during_a_memory_checkpoint(
    three: st.Pool, fit: Fit, tmp_path: Path, undisturbed: Callable[[int, bool], Members], rank: int
) -> None:
    result, members, _ = trained(three, fit, tmp_path, 2, False, [[rank, "round", 5]], every="0.001s")
    [restart] = result.restarts
    assert (restart.rank, restart.healed, restart.steps_lost) == (rank, True, 0), restart.cause
    expect_each_call_once(tmp_path, 2)  # the lost process has called its callbacks before the checkpoint
    for (variables, facts), (expected_variables, expected_facts) in zip(members, undisturbed(2, False), strict=True):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert facts["history"] == expected_facts["history"]


@pytest.mark.all(case="`healing=False`", covered_by="`unit/state/test_seat_decisions`: a run that does not heal")
@on_horovod
def test_all_members_restart_where_healing_is_off(three: st.Pool, fit: Fit, tmp_path: Path) -> None:
    result, _, processes = trained(three, fit, tmp_path, 2, True, [[1, "batch", 5]], healing=False)
    assert [(restart.rank, restart.healed) for restart in result.restarts] == [(1, False)]
    assert processes == 4


@pytest.mark.all(case="a ring heals with full shared memory", covered_by="rings that heal with shared memory")
def test_a_ring_heals_where_shared_memory_is_full(tmp_path: Path) -> None:
    program = (
        "import json, pathlib; from tests.faults.healing_programs import compared; "
        f"print(json.dumps(compared(pathlib.Path({str(tmp_path)!r}), [[1, 'batch', 5], [0, 'batch', 13]])))"
    )
    # In a mount namespace, so that no other process's shared memory is full.
    mounted = 'mount -t tmpfs -o size=16k full /dev/shm && exec "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounted, sys.executable, "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert shown.returncode == 0, shown.stderr[-3000:]
    broken, whole = json.loads(shown.stdout.splitlines()[-1])
    assert [is_healed for _, is_healed in broken] == [True, True], broken
    assert not whole
    (members, _), (expected, _) = (members_in(tmp_path / name, 2) for name in ("broken", "whole"))
    for (variables, facts), (expected_variables, _) in zip(members, expected, strict=True):
        assert variables == expected_variables
        assert facts["traces"] == 1
