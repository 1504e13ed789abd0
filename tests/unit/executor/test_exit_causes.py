"""The wording for each way in which a process ends without an outcome."""

import pytest

from sparktrain.executor.exit_causes import classify
from sparktrain.protocol.frames import UNREACHABLE_STATUS
from sparktrain.protocol.pipe_messages import Exited
from sparktrain.state.outcome import FailureKind as Kind

GIB = 2**30


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (0, Kind.EXIT, "process exited with code 0 before the function returned (os._exit, or a native library)"),
        (3, Kind.EXIT, "process exited with code 3 before"),
        (-11, Kind.SIGNAL, "ended by SIGSEGV (segmentation fault): a native library crashed"),
        (-15, Kind.KILLED, "ended by SIGTERM (terminated): something outside of sparktrain"),
        (-1, Kind.KILLED, "ended by SIGHUP (hangup): something outside of sparktrain"),
        (-2, Kind.SIGNAL, "ended by SIGINT (interrupt)"),
        (-40, Kind.SIGNAL, "ended by signal 40 (real-time signal 6)"),
        (
            -9,
            Kind.MEMORY,
            "killed by SIGKILL (exit code 137): most likely out of memory; the process used up to 1,536 MiB",
        ),
        (UNREACHABLE_STATUS, Kind.EXIT, "closes file descriptors that it did not open"),
    ],
)
def test_wording(status: int, kind: Kind, words: str) -> None:
    failure = classify(Exited(1, status, GIB * 3 // 2, 0), log_tail=("last",))

    assert failure.kind is kind
    assert failure.summary.startswith(words) or words in failure.summary
    assert failure.log_tail == ("last",)


def test_an_abort_of_jax_without_its_coordinator_follows_another_loss() -> None:
    lost = "F1126 client.h:80] Terminating process because the JAX distributed service detected fatal errors. This"
    stacks = ("Fatal Python error: Aborted", *(f"  File {number}" for number in range(60)))

    follower = classify(Exited(1, -6, GIB, 0), log_tail=(lost, *stacks))
    crash = classify(Exited(1, -6, GIB, 0), log_tail=stacks)

    assert follower.kind is Kind.RING
    assert "another member was lost before" in follower.summary
    assert follower.log_tail == stacks[-20:]
    assert crash.kind is Kind.SIGNAL


def test_the_memory_failure_names_the_next_step() -> None:
    step = "raise spark.executor.memoryOverhead, which is the memory that "
    assert classify(Exited(1, -9, GIB, 0)).summary.endswith(f"{step}Python has")
    killed = classify(Exited(1, -9, GIB, 0), frameworks=("torch", "xgboost"))
    assert killed.summary.endswith(f"{step}Python, PyTorch and XGBoost have")


@pytest.mark.parametrize(("memory_kills", "kind"), [(None, Kind.MEMORY), (1, Kind.MEMORY), (0, Kind.KILLED)])
def test_a_kill_counts_as_lack_of_memory_unless_the_kernel_has_counted_none(
    memory_kills: int | None, kind: Kind
) -> None:
    failure = classify(Exited(1, -9, GIB, 0, memory_kills))
    assert failure.kind is kind
    assert ("not for lack of memory" in failure.summary) is (kind is Kind.KILLED)


def test_a_requested_stop_takes_precedence() -> None:
    failure = classify(Exited(1, -9, GIB, 0), stopped=True, disconnected=True)

    assert failure.kind is Kind.STOPPED
    assert failure.summary == "stopped on request; ended by SIGKILL (killed)"


def test_a_member_that_was_killed_for_cutting_itself_off_did_not_run_out_of_memory() -> None:
    assert classify(Exited(1, -9, GIB, 0), disconnected=True).kind is Kind.EXIT
