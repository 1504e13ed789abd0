"""Exceptions as text."""

import sys

import pytest

from sparktrain.config.quantities import count
from sparktrain.errors import OutOfStepError, RingError, UserError
from sparktrain.state.outcome import FailureKind as Kind
from sparktrain.training import failure


def _caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class ResourceExhaustedError(Exception):
    """As TensorFlow's."""


class MuteError(Exception):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


@pytest.mark.parametrize(
    ("error", "kind", "summary"),
    [
        (ValueError("no\n  good"), Kind.EXCEPTION, "ValueError: no good"),
        (ValueError(), Kind.EXCEPTION, "ValueError"),
        (KeyError("k"), Kind.EXCEPTION, "KeyError: 'k'"),
        (MuteError(), Kind.EXCEPTION, "MuteError: (its message cannot be shown: SystemExit)"),
        (GeneratorExit(), Kind.EXCEPTION, "GeneratorExit"),
        (SystemExit(), Kind.EXIT, "sys.exit() was called before the function returned a result"),
        (SystemExit("bye"), Kind.EXIT, "sys.exit('bye') was called before the function returned a result"),
        (MemoryError("1 TiB"), Kind.MEMORY, "MemoryError: 1 TiB (lower the batch size, or give trials more memory)"),
        (ResourceExhaustedError("GPU"), Kind.MEMORY, "ResourceExhaustedError: GPU (lower the batch size, or give"),
    ],
)
def test_kind_and_summary(error: BaseException, kind: Kind, summary: str) -> None:
    made = failure.of_exception(_caught(error))

    assert made.kind is kind
    assert made.summary.startswith(summary)


@pytest.mark.parametrize("wraps", [True, False])
def test_members_with_the_same_gpu_are_no_broken_ring_which_would_be_formed_again(wraps: bool) -> None:
    error = RuntimeError("NCCL error: invalid usage. Last error:\nDuplicate GPU detected : rank 0 and rank 1")
    if wraps:
        outer = RingError("rank 0: operation 'value' of the ring failed")
        outer.__cause__ = error
        error = outer
    failed = failure.of_exception(_caught(error), ring_broke=lambda error: True)
    assert failed.kind is Kind.EXCEPTION
    assert failed.summary.startswith(
        "two members of this gang have the same GPU, which NCCL refuses: give each member a"
    )


def test_a_long_message_keeps_its_beginning_and_the_advice() -> None:
    made = failure.of_exception(MemoryError("x" * 10_000))

    assert len(made.summary) == failure.SUMMARY_CHARS
    assert made.summary.endswith("x... (lower the batch size, or give trials more memory)")


def test_a_long_traceback_keeps_both_ends() -> None:
    made = failure.of_exception(_caught(ValueError("head " + "\u20ac" * 100_000 + " tail")))

    assert len(made.traceback.encode()) <= failure.TRACEBACK_BYTES
    assert made.traceback.startswith("Traceback (most recent call last)")
    assert "\n... (cut) ...\n" in made.traceback
    assert made.traceback.endswith(" tail\n")


def test_causes_and_groups_are_in_the_traceback() -> None:
    group = ExceptionGroup("both", [ValueError("first"), OSError("second")])
    group.__cause__ = KeyError("cause")

    made = failure.of_exception(_caught(group))

    assert made.summary == "ExceptionGroup: both (2 sub-exceptions)"
    assert all(part in made.traceback for part in ("KeyError: 'cause'", "ValueError: first", "OSError: second"))


def test_a_module_that_is_not_there_is_named() -> None:
    made = failure.of_loading(_caught(ModuleNotFoundError("No module named 'x.y'", name="x.y")), "host-1")

    assert made.kind is Kind.LOAD
    assert made.summary == (
        "module 'x.y' cannot be imported on executor host host-1; bring it with sc.addPyFile(...) / --py-files / "
        "spark.addArtifacts(..., pyfile=True), or install it there"
    )


def test_another_error_while_loading_is_shown() -> None:
    made = failure.of_loading(_caught(AttributeError("no train")), "host-1")

    assert made.summary == "the function cannot be loaded on executor host host-1: AttributeError: no train"
    assert "_caught" in made.traceback


def test_an_error_that_refuses_a_call_ends_at_the_line_of_the_call() -> None:
    with pytest.raises(UserError) as caught:
        count(0, "slots", least=1)
    made = failure.of_exception(caught.value)
    assert 'count(0, "slots", least=1)' in made.traceback
    assert "quantities.py" not in made.traceback


def test_members_out_of_step_are_a_mismatch_also_where_autograph_raises_another_error_of_it() -> None:
    own = OutOfStepError("rank 1 differs")
    wrapped = _caught(RuntimeError("in user code: rank 1 differs"))
    wrapped.__cause__ = own
    assert failure.of_exception(own).kind is failure.of_exception(wrapped).kind is Kind.MISMATCH


def test_where_a_thread_is_begins_below_the_very_function_and_not_one_of_its_name() -> None:
    def _called(frames: list[str]) -> list[str]:
        frames.append(failure.where(sys._getframe(), _called.__code__))
        return within(frames)

    def within(frames: list[str]) -> list[str]:
        frames.append(failure.where(sys._getframe(), _called.__code__))
        return frames

    own, below = _called([])
    assert own == ""
    assert [line.strip().rpartition(" in ")[2] for line in below.splitlines() if "File" in line] == ["within"]
    assert failure.where(sys._getframe(), failure.where.__code__) == ""


def test_a_library_without_room_in_the_address_space_lacks_memory() -> None:
    failed = failure.of_exception(ImportError("libx.so: failed to map segment from shared object"))
    assert failed.kind is Kind.MEMORY
    assert "spark.executor.pyspark.memory" in failed.summary
