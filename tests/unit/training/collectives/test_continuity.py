"""Collectives between steps return what the ring, or another member that was further, has computed."""

import numpy as np
import pytest

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import Continuity, MissedCallError, Result


def failing() -> Result:
    raise RingError("a member is gone")


def never() -> Result:
    raise AssertionError("not called")


def test_an_error_ends_the_training_without_healing() -> None:
    with pytest.raises(RingError):
        Continuity().call(failing, never)


def test_a_collective_is_repeated_in_the_next_ring() -> None:
    continuity = Continuity()
    healed: list[str] = []
    continuity.heal = lambda error: healed.append(str(error))
    results = iter([RingError("gone"), [3]])

    def operate() -> Result:
        match next(results):
            case RingError() as error:
                raise error
            case result:
                return result

    assert continuity.call(operate, never) == [3]
    assert healed == ["gone"]
    assert continuity.results == [[3]]


def like() -> Result:
    return [np.array(0)]


def test_a_member_that_was_behind_takes_what_another_one_has_recorded() -> None:
    continuity = Continuity()
    continuity.heal = lambda error: continuity.follow([[np.array(1)], [np.array(2)]])
    assert continuity.call(failing, like) == [1]
    assert continuity.is_behind
    assert continuity.call(never, like) == [2]
    assert not continuity.is_behind
    assert continuity.call(lambda: [3], like) == [3]
    assert continuity.results == [[1], [2], [3]]
    continuity.step()
    assert continuity.results == []


def test_an_error_while_it_heals_is_raised() -> None:
    continuity = Continuity()
    continuity.heal = lambda error: pytest.fail("healing does not heal")
    with continuity.healing(), pytest.raises(RingError):
        continuity.call(failing, never)


def test_a_new_process_echoes_what_the_others_have_done_before() -> None:
    continuity = Continuity()
    continuity.echoes = True
    assert continuity.call(never, lambda: [7]) == [7]
    with continuity.healing():
        assert continuity.call(lambda: [1], never) == [1]


def test_the_result_of_another_collective_is_refused() -> None:
    continuity = Continuity()
    continuity.follow([[np.zeros((2, 3))]])
    with pytest.raises(MissedCallError, match=r"the code after memory.step\(\) must do the same"):
        continuity.call(never, lambda: [np.zeros((2, 4))])


def test_members_compare_their_next_collective_once_and_do_not_heal_where_they_differ() -> None:
    continuity = Continuity()
    continuity.heal = lambda error: pytest.fail("another ring changes nothing")
    names: list[str] = []
    continuity.comparison = names.append
    assert continuity.call(lambda: [1], never, "value") == [1]
    assert continuity.call(lambda: [2], never, "other") == [2]
    assert names == ["value"]

    def differ(name: str) -> None:
        raise MissedCallError(name)

    continuity.comparison = differ
    with pytest.raises(MissedCallError, match="value"):
        continuity.call(never, never, "value")


def test_collectives_before_a_training_are_compared_with_their_echoes_until_one_differs() -> None:
    continuity = Continuity()
    continuity.is_equal = lambda result, echo: result == echo
    continuity.call(lambda: [1], lambda: [1])
    assert continuity.repeats
    continuity.call(lambda: [1], lambda: [2])
    assert not continuity.repeats
    continuity.call(lambda: [1], never)
