"""Collectives between steps return what the ring, or another member that was further, has computed."""

import pytest

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import Continuity, Result


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


def test_a_member_that_was_behind_takes_what_another_one_has_recorded() -> None:
    continuity = Continuity()
    continuity.heal = lambda error: continuity.follow([[1], [2]])
    assert continuity.call(failing, never) == [1]
    assert continuity.call(never, never) == [2]
    assert continuity.call(lambda: [3], never) == [3]
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
