"""Collectives between steps return what the ring, or another member that was further, has computed."""

from collections.abc import Callable

import numpy as np
import pytest

from sparktrain.errors import RingError
from sparktrain.training.collectives.continuity import CallSurvivor, Continuity, MissedCallError, Result


def failing() -> Result:
    raise RingError("a member is gone")


class Survivor(CallSurvivor):
    """Notes what comes next, and the errors; `heals` is called with each of these."""

    def __init__(self, heals: Callable[[BaseException], object] = lambda error: None) -> None:
        self.names: list[str] = []
        self.errors: list[str] = []
        self._heals = heals

    def meet(self, name: str) -> None:
        self.names.append(name)
        if name == "missed":
            raise MissedCallError(name)

    def heal(self, error: BaseException) -> bool:
        self.errors.append(str(error))
        self._heals(error)
        return True


def never() -> Result:
    raise AssertionError("not called")


def test_an_error_ends_the_training_without_healing() -> None:
    with pytest.raises(RingError):
        Continuity().call(failing, never)


def test_a_collective_is_repeated_in_the_next_ring() -> None:
    continuity = Continuity()
    continuity.survivor = survivor = Survivor()
    results = iter([RingError("gone"), [3]])

    def operate() -> Result:
        match next(results):
            case RingError() as error:
                raise error
            case result:
                return result

    assert continuity.call(operate, never, "value") == [3]
    assert survivor.errors == ["gone"]
    assert survivor.names == ["value"] * 2
    assert continuity.results == [[3]]


def like() -> Result:
    return [np.array(0)]


def test_a_member_that_was_behind_takes_what_another_one_has_recorded() -> None:
    continuity = Continuity()
    continuity.survivor = Survivor(lambda error: continuity.follow([[np.array(1)], [np.array(2)]]))
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
    continuity.survivor = Survivor(lambda error: pytest.fail("healing does not heal"))
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


def test_members_that_do_different_things_next_do_not_heal() -> None:
    continuity = Continuity()
    continuity.survivor = Survivor(lambda error: pytest.fail("another ring changes nothing"))
    with pytest.raises(MissedCallError):
        continuity.call(never, never, "missed")


def test_collectives_before_a_training_are_compared_with_their_echoes_until_one_differs() -> None:
    continuity = Continuity()
    continuity.checks_echoes = True
    continuity.call(lambda: [1], lambda: [1])
    assert continuity.repeats
    continuity.call(lambda: [1], lambda: [2])
    assert not continuity.repeats
    continuity.call(lambda: [1], never)
