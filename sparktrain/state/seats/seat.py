"""What a seat of a gang holds, as the coordinator knows it. `Gang.state_of` computes it. Pure."""

from enum import Enum


class SeatState(Enum):
    """The process of one seat: that of a member, or one that is prepared for the place of a member."""

    VACANT = "the others form a ring without it, or have formed one"
    EMPTY = "the process is gone, and no agent has the next one"
    JOINING = "an agent starts the process, which has not come to its ring"
    WAITING = "the process waits at its ring for the place of a member"
    TRAINING = "the process is in the newest ring"
    LEAVING = "the process hangs or has another ring, and is being ended"
    LEFT = "the process has ended, and none follows"


OCCUPIED = (SeatState.JOINING, SeatState.TRAINING, SeatState.LEAVING)
"""An agent has the process of a member."""
