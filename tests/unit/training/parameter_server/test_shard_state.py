"""The arithmetic of a server: equalities with one process, staleness, rounds, and no gradient twice."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.config.server_settings import ServerMode, ServerSettings
from sparktrain.errors import ProtocolError
from sparktrain.training.frameworks.tensorflow.parameter_server.shard_state import (
    AddDifferences,
    Push,
    PushAnswer,
    PushOutcome,
    Sender,
    ShardState,
)
from tests.support.examples import examples
from tests.support.plain_sgd import PlainSgd

RATE = 0.125
"""With gradients of whole numbers, sums and updates are exact."""
TERM = 5


def state(mode: ServerMode, workers: int = 1, backup: int = 0) -> ShardState:
    return ShardState(ServerSettings(mode, workers, backup), [np.zeros(3)], PlainSgd(RATE), term=TERM)


def push(
    server: ShardState, rank: int, number: int, version: int, gradient: float, incarnation: int = 0, term: int = TERM
) -> PushAnswer:
    return server.push(Push(Sender(rank, incarnation), number, term, version), [np.full(3, gradient, float)])


def weight(server: ShardState) -> float:
    found: float = server.values[0][0]
    assert (server.values[0] == found).all()
    return found


@given(st.lists(st.integers(-9, 9), max_size=20))
def test_async_with_one_member_is_plain_sgd(gradients: list[int]) -> None:
    server, expected = state(ServerMode.ASYNC), 0.0
    for number, gradient in enumerate(gradients, 1):
        answer = push(server, 0, number, server.version, gradient)
        expected -= RATE * gradient
        assert answer == PushAnswer(PushOutcome.APPLIED, number, 0)
        assert weight(server) == expected


@given(st.integers(1, 4), st.lists(st.integers(-8, 8), min_size=4, max_size=4), st.randoms())
def test_sync_is_one_process_on_the_whole_batch(workers: int, gradients: list[int], order: Any) -> None:
    server, expected = state(ServerMode.SYNC, workers), 0.0
    for step in range(3):
        ranks = list(range(workers))
        order.shuffle(ranks)
        for rank in ranks:
            assert server.version == step
            push(server, rank, step + 1, step, gradients[rank])
        expected -= RATE * (sum(gradients[:workers]) / workers)
        assert weight(server) == pytest.approx(expected, abs=1e-12)
    assert (server.version, server.late) == (3, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60), st.booleans())
@examples(200)
def test_staleness_is_what_others_applied_since_the_pull(events: list[tuple[int, bool]], aware: bool) -> None:
    mode = ServerMode.STALENESS_AWARE if aware else ServerMode.ASYNC
    server, expected = state(mode, 3), 0.0
    pulled, since, numbers = [0] * 3, [0] * 3, [0] * 3
    for rank, pulls in events:
        if pulls:
            pulled[rank], since[rank] = server.version, 0
            continue
        numbers[rank] += 1
        assert push(server, rank, numbers[rank], pulled[rank], 1.0).staleness == since[rank]
        expected -= RATE / (max(1, since[rank]) if aware else 1)
        since = [each + 1 for each in since]
        assert weight(server) == pytest.approx(expected, abs=1e-12)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.sampled_from([ServerMode.ASYNC, ServerMode.SYNC, ServerMode.LOCAL_SGD]),
)
def test_a_retry_changes_nothing_and_has_the_same_answer(ranks: list[int], mode: ServerMode) -> None:
    server, plain, numbers = state(mode, 3), state(mode, 3), [0] * 3
    for rank in ranks:
        numbers[rank] += 1
        version = server.version
        first = push(server, rank, numbers[rank], version, 4.0)
        assert push(server, rank, numbers[rank], version, 4.0) == first
        assert push(plain, rank, numbers[rank], version, 4.0) == first
        assert (weight(server), server.version, server.late) == (weight(plain), plain.version, plain.late)


def test_a_retry_after_its_round_is_over_changes_nothing() -> None:
    server = state(ServerMode.SYNC, 2)
    first = push(server, 0, 1, 0, 2.0)
    assert first == PushAnswer(PushOutcome.COUNTED, 1, 0)
    push(server, 1, 1, 0, 4.0)
    assert push(server, 0, 1, 0, 2.0) == first
    assert (weight(server), server.version) == (-RATE * 3.0, 1)


def test_the_first_gradients_count_with_backup_workers() -> None:
    server = state(ServerMode.SYNC, 3, backup=1)
    push(server, 2, 1, 0, 2.0)
    assert push(server, 0, 1, 0, 4.0).outcome is PushOutcome.APPLIED
    assert weight(server) == -RATE * 3.0
    assert push(server, 1, 1, 0, 100.0) == PushAnswer(PushOutcome.LATE, 1, 1)
    assert (weight(server), server.version, server.late) == (-RATE * 3.0, 1, 1)


def test_a_member_counts_once_in_a_round_also_after_its_restart() -> None:
    server = state(ServerMode.SYNC, 2)
    push(server, 0, 1, 0, 2.0)
    assert push(server, 0, 1, 0, 8.0, incarnation=1) == PushAnswer(PushOutcome.LATE, 1, 0), "it waits for version 1"
    push(server, 1, 1, 0, 4.0)
    assert weight(server) == -RATE * 3.0


def test_a_round_does_not_wait_for_members_that_have_left() -> None:
    server = state(ServerMode.SYNC, 3)
    push(server, 0, 1, 0, 2.0)
    push(server, 1, 1, 0, 4.0)
    assert server.version == 0
    server.leave(Sender(2, 0))
    assert (server.version, weight(server)) == (1, -RATE * 3.0)
    server.leave(Sender(1, 0))
    push(server, 0, 2, 1, 8.0)
    assert server.version == 2


def test_a_member_that_returns_is_waited_for_again() -> None:
    server = state(ServerMode.SYNC, 2)
    server.leave(Sender(1, 0))
    assert server.needed == 1
    push(server, 1, 1, 0, 1.0, incarnation=1)
    assert server.needed == 2
    server.leave(Sender(1, 0))
    assert server.needed == 2


def local(workers: int, start: float = 0.0) -> ShardState:
    settings = ServerSettings(ServerMode.LOCAL_SGD, workers)
    return ShardState(settings, [np.full(3, start)], AddDifferences(), term=TERM)


@given(st.integers(1, 4), st.lists(st.integers(-8, 8), min_size=4, max_size=4), st.randoms())
def test_local_sgd_is_the_mean_of_weights_where_all_push_for_one_version(
    workers: int, trained: list[int], order: Any
) -> None:
    server, base = local(workers, 16.0), 16.0
    for step in range(3):
        pulled, ranks = server.version, list(range(workers))
        order.shuffle(ranks)
        for rank in ranks:
            sent = base + trained[rank] if workers == 1 else float(trained[rank])
            assert push(server, rank, step + 1, pulled, sent).outcome is PushOutcome.APPLIED
        base = sum(base + each for each in trained[:workers]) / workers
        assert weight(server) == pytest.approx(base, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(-4, 4)), max_size=40))
def test_local_sgd_adds_what_each_member_has_trained_since_its_pull(events: list[tuple[int, float]]) -> None:
    """Two workers in any order: algorithm 2 of Stich 2019, each with `x` and `r`, the weights that it has read."""
    server, mean, read, numbers = local(2), 0.0, [0.0, 0.0], [0, 0]
    versions = [0, 0]
    for rank, trained in events:
        own, numbers[rank] = read[rank] + trained, numbers[rank] + 1
        push(server, rank, numbers[rank], versions[rank], own - read[rank])
        mean += (own - read[rank]) / 2
        read[rank], versions[rank] = weight(server), server.version
        assert weight(server) == pytest.approx(mean, abs=1e-9)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_the_only_member_of_local_sgd_has_the_weights_that_it_trained_to_the_last_bit(trained: list[float]) -> None:
    server = local(1, 0.1)
    for number, each in enumerate(trained, 1):
        push(server, 0, number, number - 1, each)
        assert weight(server) == each


@pytest.mark.parametrize("mode", list(ServerMode))
def test_a_push_for_variables_before_a_restore_does_not_count(mode: ServerMode) -> None:
    server = state(mode)
    assert push(server, 0, 7, 900, 1.0, term=TERM - 1).outcome is PushOutcome.LATE
    assert (weight(server), server.version) == (0.0, 0)
    assert push(server, 0, 8, 0, 1.0).outcome is PushOutcome.APPLIED


def test_pushes_that_no_member_can_send_are_refused() -> None:
    server = state(ServerMode.ASYNC, 2)
    push(server, 0, 2, 0, 1.0, incarnation=1)
    before = weight(server)
    with pytest.raises(ProtocolError, match="took its place"):
        push(server, 0, 3, 0, 1.0)
    with pytest.raises(ProtocolError, match="came after its push 2"):
        push(server, 0, 1, 0, 1.0, incarnation=1)
    with pytest.raises(ProtocolError, match="came after its push 2"):
        push(server, 0, 2, 1, 1.0, incarnation=1)
    with pytest.raises(ProtocolError, match="for version 9"):
        push(server, 1, 1, 9, 1.0)
    with pytest.raises(ProtocolError, match="2 workers train"):
        push(server, 2, 1, 0, 1.0)
    with pytest.raises(ProtocolError, match="the variables are"):
        server.push(Push(Sender(1, 0), 1, TERM, 0), [np.zeros(4)])
    assert (weight(server), server.version) == (before, 1)


def test_gradients_stay_with_their_types() -> None:
    values = [np.zeros(2, np.float16), np.zeros(2, np.float32)]
    server = ShardState(ServerSettings(ServerMode.SYNC, 2), values, PlainSgd(RATE), term=TERM)
    for rank in range(2):
        gradients = [np.ones(2, np.float16), np.ones(2, np.float32)]
        server.push(Push(Sender(rank, 0), 1, TERM, 0), gradients)
    assert [each.dtype.name for each in server.values] == ["float16", "float32"]
    assert [each[0] for each in server.values] == [-RATE, -RATE]
