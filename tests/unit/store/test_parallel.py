"""Work on many items, spread over threads."""

import threading

import pytest

from sparktrain.store.parallel import CheckCancelled, spread

SOON_S = 30.0


def test_results_are_in_the_order_of_the_items() -> None:
    first_is_over = threading.Event()

    def work(thing: int, check_cancelled: CheckCancelled) -> int:
        if thing == 0:
            assert first_is_over.wait(SOON_S)
        else:
            first_is_over.set()
        return 10 * thing

    assert spread(work, [0, 1, 2, 3], 2) == [0, 10, 20, 30]
    assert spread(work, [], 2) == []


def test_one_thread_is_the_callers_own() -> None:
    assert spread(lambda thing, check_cancelled: threading.get_ident(), [1, 2, 3], 1) == [threading.get_ident()] * 3


def test_no_more_items_run_at_once_than_there_are_threads() -> None:
    together = threading.Barrier(3)
    seen: set[int] = set()

    def work(thing: int, check_cancelled: CheckCancelled) -> None:
        together.wait(SOON_S)  # breaks when fewer run at once
        seen.add(threading.get_ident())

    before = threading.active_count()
    spread(work, range(9), 3)
    assert len(seen) == 3
    assert threading.active_count() == before


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_first_failure_cancels_the_others(error: BaseException) -> None:
    started, failed = [], threading.Event()
    together = threading.Barrier(3)

    def work(thing: int, check_cancelled: CheckCancelled) -> None:
        started.append(thing)
        together.wait(SOON_S)
        if thing == 1:
            failed.set()
            raise error
        assert failed.wait(SOON_S)
        while True:  # until it is cancelled
            check_cancelled()

    with pytest.raises(type(error)) as caught:
        spread(work, range(100), 3)
    assert caught.value is error
    assert sorted(started) == [0, 1, 2]
