"""How many slots feeding jobs get, so that none of them waits for a slot that another one holds."""

import pytest

from sparktrain.config.gang_spec import GangSpec
from sparktrain.driver.feeds.feeding_slots import FeedingSlots, feeding_slots
from sparktrain.errors import ResourceError

ONE, TWO = GangSpec(), GangSpec(workers=2)
ANY = FeedingSlots(1, None)


@pytest.mark.parametrize(
    ("streams", "gang", "agents", "slots", "found"),
    [
        ((), ONE, 4, 4, ANY),
        (("a",), ONE, 4, None, ANY),
        (("a",), ONE, 3, 4, ANY),  # trials of one member are fed in turn
        (("a",), TWO, 2, 4, FeedingSlots(2, 2)),
        (("a",), TWO, 2, 7, FeedingSlots(4, 4)),  # as many for each member
        (("a",), TWO, 4, 6, FeedingSlots(2, 2)),  # gangs are fed in turn
        (("a", "b"), ONE, 1, 3, FeedingSlots(2, 1)),
        (("a", "b"), ONE, 1, 8, FeedingSlots(6, 3)),
        (("a", "b"), ONE, 2, 5, FeedingSlots(3, 1)),  # both trials have the rows of a, and one those of b
        (("a", "b"), TWO, 2, 7, FeedingSlots(4, 2)),
    ],
)
def test_all_tasks_of_streams_that_are_read_together_have_slots_together(
    streams: tuple[str, ...], gang: GangSpec, agents: int, slots: int | None, found: FeedingSlots
) -> None:
    assert feeding_slots(streams, gang, agents, slots) == found


def test_agents_on_this_machine_hold_no_slots_of_the_session() -> None:
    assert feeding_slots(("a",), TWO, 2, 2, held=False) == FeedingSlots(2, 2)
    with pytest.raises(ResourceError, match="at least 3 free slots of the 2 slots of this session"):
        feeding_slots(("a", "b", "c"), ONE, 1, 2, held=False)


def test_agents_on_all_slots_are_refused_with_what_to_set() -> None:
    with pytest.raises(ResourceError, match=r"'train'.* 4 agents, which hold all 4 slots .*spark\.executor\.cores=2"):
        feeding_slots(("train",), ONE, 4, 4)


def test_streams_that_would_wait_for_the_slots_of_each_other_are_refused() -> None:
    with pytest.raises(ResourceError, match=r"data\['a'\] and data\['b'\] are streams: .* at least 2 free slots"):
        feeding_slots(("a", "b"), ONE, 1, 2)


def test_a_gang_whose_members_would_wait_for_each_others_rows_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"need at least 2 free slots beside the 2 agents, which hold 2 of the 3"):
        feeding_slots(("a",), TWO, 2, 3)


def test_a_cluster_without_slots_for_its_feeds_is_refused_in_its_own_words() -> None:
    with pytest.raises(ResourceError) as caught:
        feeding_slots(("input",), TWO, 2, 2, pushed=True)
    text = str(caught.value)
    assert "cluster.train() and cluster.inference() feed 'input' need at least 2 free slots beside the 2 agents" in text
    assert "which hold all 2 slots of this session: " in text
    assert "InputMode.TENSORFLOW" in text
    assert "data=" not in text
