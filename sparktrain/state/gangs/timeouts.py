"""How long each step of a change of seats may take, and how long a gang waits for the next change: one table."""

AGENT_S = 5.0
"""How long a lost member waits for an agent on its host: for that of an executor which is there already, or rejoins."""
REPLACEMENT_S = 30.0
"""How long a lost member that may move waits for any agent, and a gang that may shrink for all: a cluster takes about
so long to replace an executor."""
START_S = 60.0
"""From the time at which an agent joins until it has started: so long a drained member trains on, to move there. An
import of TensorFlow takes 5 to 20 s of it."""
KILL_GRACE_S = 2.0
"""From SIGTERM, at which a member prints its stacks to its log and ends, until SIGKILL."""
END_S = 15.0
"""Until a member that was stopped must have ended; then its agent counts as lost."""
LEFT_S = 60.0
"""The same for a process that has left its gang: nothing waits for it."""
HANDOVER_S = 120.0
"""From the start of a prepared process until it waits for its ring, and from the offer of it until the members have
left theirs: they agree about each second, and after whole steps."""
SETTLE_S = 20.0
"""From the change of a ring until its new process has made a step: before that it cannot leave the ring again."""
COOLDOWN_S = 5.0
"""How long a gang trains before it grows or moves a member off a crowded host: right after a loss another one may
follow, and agents that come back one after the other do not each cost a restart."""
PAUSE_INTERVAL_S = 60.0
"""From a request to pause for another gang to the next one. The members may take half of it to their snapshots; then
they train on as they are."""
