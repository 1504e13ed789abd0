"""What the coordinator decides for the seats of a gang, by the reason: each row names a situation, and what follows.

A row has deeds, with the event as the last one, and after `=>` what the coordinator decides then. `1@a3 start` means
that agent a3 starts the next process of rank 1. For each reason `make test` has one fault of real processes too:

* lost: `faults/test_healing_fits`; smaller, vacant: `faults/test_smaller_rings`, for a pause `faults/test_training`;
* beside servers: `training/test_ps_gangs`; hung: `faults/test_training`; drained: `faults/test_draining`;
* standby: `faults/test_standbys`; preempted: `process/test_several_calls`; adopted: `faults/test_ring_takeover`;
* crowded: `hosts/test_spread` in `make test-all`, because the member moves as a drained one does.
"""

import re
from typing import Any

import pytest

from tests.unit.state.situations import SERVERS, Situation

LIMITS = {
    "smaller": "min_workers 1",
    "vacant": "min_workers 1",
    "beside servers": "servers",
    "hung": "hang_timeout_s 10",
    "crowded": "hosts aab, spread True",
    "standby": "standby 1",
}
"""Options of all runs of a table."""
TABLES = {
    "lost": """
its agent starts the next process, and the others leave their ring
    signal 1 => 0 2 leave ring 0; 1@a1 start in ring 1
the chief is a member like others
    exit 0 => 1 2 leave ring 0; 0@a0 start in ring 1
the ring forms once the next process has a port
    signal 1, port 1 => 0 1 2 form ring 1 of a0 a1 a2
it has entered, and has no state yet
    signal 1, port 1, enter 1 => nothing
one member has not joined the ring
    signal 1, port 1, meet 0 1 => nothing
all have joined, and train on
    signal 1, port 1, meet 0 1, meet 2 => 1 healed, 0 steps lost; 0 1 2 train on in ring 1 of a0 a1 a2
a step that the lost process alone had reported is repeated
    step 21 1, signal 1, port 1, arrive 0 1 2 => 1 healed, 1 steps lost; 0 1 2 train on in ring 1 of a0 a1 a2
a member trains a step after the loss, and all keep that step
    step 21 0, signal 1, port 1, arrive 0 1 2 => 1 healed, 0 steps lost; 0 1 2 train on in ring 1 of a0 a1 a2
the ring breaks again later
    signal 1, port 1, meet, memory 2 => 0 1 leave ring 1; 2@a2 start in ring 2
its agent is lost, and another one is idle
    join a3, lose 1 => 0 2 leave ring 0; 1@a3 start in ring 1
an agent comes later
    lose 1, wait 29, join a7 => 1@a7 start in ring 1
no agent comes in time
    lose 1, wait 31 => a0 a2 end, for lost of 1: no agent was idle within 30 s
the next process does not train in time | join_timeout_s 40
    signal 1, wait 41 => a0 a1 a2 end, for signal of 1: it did not train within 40 s
one member does not join the ring in time | join_timeout_s 40
    signal 1, port 1, meet 0 1, wait 41 => a0 a1 a2 end, for signal of 1: it did not train within 40 s
half of the members are left | size 4
    signal 1, signal 3 => 0 2 leave ring 1; 3@a3 start in ring 2
one of two next processes has a port | size 4
    signal 1, signal 3, port 1 => nothing
both have ports | size 4
    signal 1, signal 3, port 1, port 3 => 0 1 2 3 form ring 2 of a0 a1 a2 a3
both come back at once | size 4
    signal 1, signal 3, port 1, port 3, meet 0 1 2, meet 3
        => 1 healed, 0 steps lost; 3 healed, 0 steps lost; 0 1 2 3 train on in ring 2 of a0 a1 a2 a3
fewer than half are left | size 4
    signal 1, signal 2, signal 3 => a0 a1 a2 end, for signal of 1: rank 3 ended: failed by signal
one of two is left | size 2
    signal 0 => 1 leave ring 0; 0@a0 start in ring 1
another member is lost while the next process has a place: that starts again | size 4
    signal 1, port 1, enter 1, signal 2 => 0 3 leave ring 1; a1 end; 2@a2 start in ring 2
it has ended, and starts | size 4
    signal 1, port 1, enter 1, signal 2, stopped 1 => 1@a1 start in ring 2
its agent is lost, and it waits for another one | size 4
    signal 1, port 1, signal 2, lose 1 => nothing
the next process dies
    signal 1, port 1, exit 1 => 0 2 leave ring 1; 1@a1 start in ring 2
the next process sees another loss before the driver knows of that
    signal 1, port 1, ring 1 => 0 2 leave ring 1; 1@a1 start in ring 2
each process that dies uses a retry | max_retries 2
    signal 1, exit 1, exit 1 => a0 a2 end, for signal of 1: failed by exit
no retry is left | max_retries 0
    signal 1 => a0 a2 end, for signal of 1
a second loss without a step between has no retry | max_retries 1
    signal 1, port 1, meet, signal 1 => a0 a2 end, for signal of 1
a member that stays cannot heal
    unable 0, signal 1 => a0 a2 end, for signal of 1
the lost one could not heal
    unable 1, signal 1 => 0 2 leave ring 0; 1@a1 start in ring 1
a ring that has healed cannot heal before its members declare it
    signal 1, port 1, arrive 0 1 2, signal 2 => a0 a1 end, for signal of 2
the run does not heal | heals False
    signal 1 => a0 a2 end, for signal of 1
an exception is the user's
    exception 1 => a0 a2 end, for exception of 1
a checkpoint that cannot be read is no lost process
    checkpoint 1 => a0 a2 end, for checkpoint of 1
a ring that fails waits for the cause
    ring 1 => nothing
the cause comes
    ring 0, memory 1 => a2 end, for memory of 1
a member has returned
    return 0, signal 1 => a2 end, for signal of 1
a member returns while they heal
    signal 1, return 0 => a1 a2 end, for signal of 1: rank 0 returned
another member fails while they heal
    signal 1, exception 2 => a0 a1 end, for signal of 1: rank 2 ended: failed by exception
the run stops while no agent is there
    lose 1, stop, wait 1 => a0 a2 end, for lost of 1: the run stops
the trial is stopped while they heal
    lose 1, stop trial, wait 10 => a0 a2 end
the run has been stopped
    stop, signal 1 => a0 a2 end, for signal of 1
a next process that enters while the run stops is advised to stop
    signal 1, stop, port 1, enter 1 => 1 advised to stop
the members of a gang that has not joined do not heal | joined False
    port 0, signal 1 => a0 a2 end, for signal of 1
""",
    "smaller": """
no agent is idle: the others form a ring at once
    lose 1 => 0 2 leave ring 0; 0 2 form ring 1 of a0 a2
all of them have joined it
    lose 1, meet 0, meet 2 => 1 shrunk, 0 steps lost; 0 2 train on in ring 1 of a0 a2
its agent lives, and starts the next process
    signal 1 => 0 2 leave ring 0; 1@a1 start in ring 1
another agent is idle
    join a3, lose 1 => 0 2 leave ring 0; 1@a3 start in ring 1
the chief is never left out
    lose 0 => 1 2 leave ring 0
too few would be left | min_workers 3
    lose 2 => 0 1 leave ring 0
as few as allowed are left | min_workers 2
    lose 2 => 0 1 leave ring 0; 0 1 form ring 1 of a0 a1
a member cannot divide the rest of its data
    declare heals moves, lose 2 => 0 1 leave ring 0
the others do not join in time | join_timeout_s 40
    lose 1, meet 0, wait 41 => a0 a2 end, for lost of 1: the others did not form a ring without it within 40 s
another agent is lost before they have joined | size 4
    lose 3, meet 0, lose 1 => 0 2 leave ring 1; 0 2 form ring 2 of a0 a2
another agent is lost later | size 4
    lose 3, meet, lose 2 => 0 1 leave ring 1; 0 1 form ring 2 of a0 a1
two are left out | size 4
    lose 3, meet, lose 2, meet => 2 shrunk, 0 steps lost; 0 1 train on in ring 2 of a0 a1
a next process would take the share of another rank | size 4
    lose 3, meet, memory 1 => 0 2 leave ring 1; 0 2 form ring 2 of a0 a2
the chief is lost beside a vacant seat | size 4
    lose 3, meet, memory 0 => a1 a2 end, for memory of 0
a member beside a vacant seat cannot divide the rest of its data | size 4
    lose 3, meet, declare heals moves, memory 1 => a0 a2 end, for memory of 1
the smallest ring loses one more | size 4, min_workers 2
    lose 3, meet, lose 2, meet, lose 1 => a0 end, for lost of 1
an agent has come before the smaller ring breaks | size 4
    lose 3, join a7, lose 1 => 0 2 leave ring 1; 1@a7 start in ring 2
the next agent that comes gets the other member | size 4
    lose 3, join a7, lose 1, join a8 => 3@a8 start in ring 2
""",
    "beside servers": """
a worker restarts alone, at its port
    signal 1 => 1@h1 start at port 4001
it has its port, and gets the places
    signal 1, again 1 => 1 form ring 0 of h h h h h
it has entered
    signal 1, again 1, enter 1 => 1 alone
an evaluator
    memory 4 => 4@h4 start at port 4004
the chief is lost with the gang
    signal 0 => h1 h2 h3 h4 end, for signal of 0
a parameter server is lost with the gang
    signal 3 => h0 h1 h2 h4 end, for signal of 3
one that gets its variables again restarts alone | restarts_servers True
    signal 3 => 3@h3 start at port 4003
its agent is lost: it moves | restarts_servers True
    join x5, lose 3 => 3@x5 start
the others learn where | restarts_servers True
    join x5, lose 3, port x5 => 0 1 2 3 4 form ring 0 of h h h x h
no agent comes for it in time | restarts_servers True
    lose 3, wait 31 => h0 h1 h2 h4 end, for lost of 3: no agent was idle within 30 s
two move, and the first has its port | restarts_servers True, max_retries 2
    join x5, join y6, lose 1, lose 3, port x5 => 0 1 2 4 form ring 0 of h x h y h
two move, and both have ports | restarts_servers True, max_retries 2
    join x5, join y6, lose 1, lose 3, port x5, port y6 => 0 1 2 3 4 form ring 0 of h x h y h
a worker's agent is lost: one on its host is idle
    join h5, lose 1 => 1@h5 start at port 4001
one on another host is none for it
    join x5, lose 1 => nothing
none comes on its host in time
    join x5, lose 1, wait 6 => h0 h2 h3 h4 end, for lost of 1: no agent on h was idle within 5 s
one comes in time
    lose 1, wait 4, join h5 => 1@h5 start at port 4001
its port is taken by another process
    signal 1, form 1 => h0 h2 h3 h4 end, for signal of 1: failed by form
it holds another port than the others know
    signal 1, port 1 => h1 refused
it does not train in time | join_timeout_s 30
    signal 1, wait 31 => h0 h1 h2 h3 h4 end, for signal of 1: it did not train within 30 s
both workers are away | max_retries 2
    signal 1, signal 2 => 2@h2 start at port 4002
both workers are away, with one retry | max_retries 1
    signal 1, signal 2 => h0 h1 h3 h4 end, for signal of 2
the chief ends while a worker is away that had trained
    signal 1, return 0 => h1 h2 h3 h4 end, for signal of 1
it is back without a step, and may need the chief
    signal 1, again 1, enter 1, return 0 => h1 h2 h3 h4 end, for signal of 1
it trains, and needs the chief no more
    signal 1, again 1, enter 1, step 30 1, return 0 => nothing
the chief fails because the worker is away
    lose 1, ring 0 => h2 h3 h4 end, for lost of 1
the chief ends while an evaluator is away | hosts hhhhe
    lose 4, return 0, return 1, return 2 => h3 end
another worker returns while one is away
    signal 1, return 2 => nothing
an exception is the user's
    exception 1 => h0 h2 h3 h4 end, for exception of 1
members read data that one alone cannot repeat | restarts_members False
    signal 1 => h0 h2 h3 h4 end, for signal of 1
the run stops while a worker waits for an agent
    lose 1, stop, wait 1 => h0 h2 h3 h4 end, for lost of 1: the run stops
""",
    "hung": """
no member of a ring makes a step: the whole gang restarts
    wait 11 => a0 a1 a2 end, for hang of 0
not yet
    wait 9 => nothing
a ring that heals does not hang
    signal 1, wait 30, port 1, meet, wait 9 => nothing
one that has healed does
    signal 1, wait 30, port 1, meet, wait 11 => a0 a1 a2 end, for hang of 0
a worker beside servers is silent, and restarts alone | servers
    wait 5, step 21 0 2, wait 5, step 22 0 2, wait 1 => h1 end
its process has ended | servers
    wait 5, step 21 0 2, wait 5, step 22 0 2, wait 1, stopped 1 => 1@h1 start at port 4001
it does not end, and its agent counts as lost | servers
    wait 5, step 21 0 2, wait 5, step 22 0 2, wait 1, step 30 0 2, wait 8, step 31 0 2, wait 8 => h1 lost
all are silent: they wait for each other | servers
    wait 11 => h0 h1 h2 h3 h4 end, for hang of 0
""",
    "drained": """
an agent is idle: the next process starts there
    join a3, hold, drain 1 => 1@a3 is prepared
it has come to its ring, and all get an offer
    join a3, hold, drain 1, ready a3
        => 1 form ring 0 of a0 a3 a2; 0 1 2 may leave for ring 1 of a0 a3 a2, where 1 changes
another member reports that it leaves
    join a3, hold, drain 1, ready a3, leave 0 => nothing
the member leaves after the step
    join a3, hold, drain 1, ready a3, leave 1 => 1 form ring 1 of a0 a3 a2
its old process ends
    join a3, hold, drain 1, ready a3, leave 1, lost a1 => nothing
all have joined the ring
    join a3, hold, drain 1, ready a3, leave 1, meet => 1 moved, 0 steps lost; 0 1 2 train on in ring 1 of a0 a3 a2
no agent that stays holds their state
    join a3, hold, drain 1, ready a3, step 30, leave 1, lost a1, meet, wait 1 => nothing
one that stays holds it
    join a3, hold, drain 1, ready a3, step 30, leave 1, lost a1, meet, hold, wait 1 => drain complete
without snapshots the move is all
    join a3, drain 1, ready a3, leave 1, lost a1, meet, wait 1 => drain complete
the chief moves as others do
    join a3, hold, drain 0, ready a3, leave 0 => 0 form ring 1 of a3 a1 a2
an agent has notice
    join a3, hold, notice 1 => 1@a3 is prepared
an agent starts: all train until then
    start a3, hold, drain 1 => nothing
it has started
    start a3, hold, drain 1, started a3, wait 0.1 => 1@a3 is prepared
it does not start in time
    start a3, hold, drain 1, wait 59, wait 2 => 0 1 2 pause
it is nearly late
    start a3, hold, drain 1, wait 59 => nothing
an agent starts on a drained host
    start a3, hold, drain a3, drain 1 => 0 1 2 pause
without half of its members the ring would not heal
    start a3, hold, drain 1, drain 2 => 0 1 2 pause
it would with half of them | size 4
    start a4, hold, drain 1, drain 2 => nothing
the ring cannot change for an agent that starts
    start a3, hold, declare heals, drain 1 => 0 1 2 pause
the ring has just changed, and an agent starts | size 4
    join a4, start a5, hold, drain 1, drain 2, ready a4, leave 1, lost a1, meet 0 2 3, arrive 1, wait 19
        => drain complete
no agent is idle: all pause in memory
    hold, drain 1 => 0 1 2 pause
all have paused
    hold, drain 1, pause 0 1, pause 2 => a0 a1 a2 end
they have ended, and an agent is there
    hold, drain 1, pause, join a7, stopped 0 1 2
        => all drained from 42 for 1: drained; 0@a0 1@a2 2@a7 start in generation 2 from memory
no agent is there, and a smaller gang may follow | min_workers 1
    hold, drain 1, pause, stopped 0 1 2
        => all drained from 42 for 1: drained; 0@a0 1@a2 start in generation 2 from memory
a loop does not change its ring for a move
    join a3, hold, declare heals, drain 1 => 0 1 2 pause
a ring that cannot heal | heals False
    join a3, hold, drain 1 => 0 1 2 pause
without snapshots they end at the next checkpoint
    drain 1, save 0 => a0 a1 a2 end
no member is asked for one
    drain 1 => nothing
a checkpoint comes first, and snapshots are better
    hold, drain 1, save 0 => nothing
between two calls of fit no member is asked
    hold, rest, drain 1 => nothing
all agents are drained: the chief saves in the store | hosts aaa
    hold, drain 1 => 0 saves and pauses
it has saved | hosts aaa
    hold, drain 1, save 0 => a0 a1 a2 end
it has not saved for a minute, and is asked again | hosts aaa
    hold, drain 1, wait 61 => 0 saves and pauses
a trial of one member saves in the store | size 1
    join a1, drain 0 => 0 saves and pauses
it has ended, and continues elsewhere | size 1
    join a1, drain 0, save 0, stopped 0
        => all drained from 20 for 0: drained; 0@a1 start in generation 2 from the store
the prepared process fails: the offer is withdrawn
    join a3, hold, drain 1, ready a3, exit a3 => 0 1 2 train on in ring 0 of a0 a1 a2
then all pause
    join a3, hold, drain 1, ready a3, exit a3, wait 0.1 => 0 1 2 pause
its agent is lost
    join a3, hold, drain 1, ready a3, lose a3 => 0 1 2 train on in ring 0 of a0 a1 a2
it is not ready in time
    join a3, hold, drain 1, wait 121 => a3 end; 0 1 2 pause
it is nearly late
    join a3, hold, drain 1, wait 119 => nothing
it does not end either
    join a3, hold, drain 1, wait 121, wait 61 => a3 lost; 0 1 2 pause
the members do not leave in time
    join a3, hold, drain 1, ready a3, wait 121 => a3 end; 0 1 2 train on in ring 0 of a0 a1 a2; 0 1 2 pause
they can take a little longer
    join a3, hold, drain 1, wait 60, ready a3, wait 119 => nothing
a member has left its call of fit
    join a3, hold, drain 1, ready a3, unable 0 => a3 end; 0 1 2 train on in ring 0 of a0 a1 a2
the user keeps the agent
    join a3, hold, drain 1, ready a3, keep 1, wait 0.1 => a3 end; 0 1 2 train on in ring 0 of a0 a1 a2
the member is lost, and its next process waits
    join a3, hold, drain 1, ready a3, lose 1 => 0 2 leave ring 1; 0 1 2 form ring 2 of a0 a3 a2
the member is lost, and its next process does not wait yet
    join a3, hold, drain 1, lose 1 => 0 2 leave ring 0; a3 end
another one is lost
    join a3, hold, drain 1, ready a3, memory 0 => 1 2 leave ring 1; a3 end; 0@a0 start in ring 2
it comes back, and the drained one moves
    join a3, hold, drain 1, ready a3, memory 0, stopped a3, port 0, meet, wait 0.1 => 1@a3 is prepared
the prepared process is lost on its way into the ring
    join a3, hold, drain 1, ready a3, leave 1, lost a1, memory a3 => 0 2 leave ring 1; 1@a3 start in ring 2
two are drained, and one moves
    join a3, join a4, hold, drain 1, drain 2 => nothing
it has moved, and made no step
    join a3, join a4, hold, drain 1, drain 2, ready a3, leave 1, lost a1, meet 0 2, arrive 1, wait 19
        => drain complete
it makes no step for too long
    join a3, join a4, hold, drain 1, drain 2, ready a3, leave 1, lost a1, meet 0 2, arrive 1, wait 21
        => drain complete; 0 1 2 pause
it has made a step, and the next one moves
    join a3, join a4, hold, drain 1, drain 2, ready a3, leave 1, lost a1, meet, wait 0.1
        => drain complete; 2@a4 is prepared
the user has stopped the trial
    hold, stop trial, drain 1 => nothing
all return before the move
    join a3, hold, drain 1, return 0, return 1, return 2 => a3 end
a member is lost while they pause
    hold, drain 1, pause 0, lose 1 => a0 a2 end, for lost of 1
they do not heal while they pause
    hold, drain 1, pause 0, memory 2 => a0 a1 end, for memory of 2
they heal when no pause has come of it
    hold, drain 1, wait 31, keep 1, wait 31, memory 2 => 0 1 leave ring 0; 2@a2 start in ring 1
beside a vacant seat they pause | size 4, min_workers 1
    lose 3, meet, step 30, hold, wait 6, drain 1 => 0 1 2 pause
""",
    "crowded": """
three of three are on one host, and the last one moves | hosts aaa
    join b7, wait 6 => 2@b7 is prepared
not right after the ring has formed | hosts aaa
    join b7, wait 4 => nothing
two of three are on one host
    join c7, wait 6 => 1@c7 is prepared
its next process is ready
    join c7, wait 6, ready c7 => 1 form ring 0 of a c b; 0 1 2 may leave for ring 1 of a c b, where 1 changes
it has moved
    join c7, wait 6, ready c7, leave 1, meet => 1 moved, 0 steps lost; 0 1 2 train on in ring 1 of a c b
a host that would be as full is no help
    join b7, wait 6 => nothing
half of the members may be on one host | hosts aabb, size 4
    join c7, wait 6 => nothing
it moves to the host with the fewest members | hosts aaaab, size 5
    join b7, join c8, wait 6 => 3@c8 is prepared
without `spread` it stays | hosts aaa, spread False
    join b7, wait 6 => nothing
a member cannot heal | hosts aaa
    unable 0, join b7, wait 6 => nothing
the member is lost before it moves
    join c7, wait 6, lose 1 => 0 2 leave ring 0; c7 end
the next process of a lost member starts on the host with the fewest | hosts abc
    join a7, join d8, lose 1 => 0 2 leave ring 0; 1@d8 start in ring 1
a ring that has healed settles first
    signal 1, port 1, meet, join c7, wait 4 => nothing
and then a member moves
    signal 1, port 1, meet, join c7, wait 6 => 1@c7 is prepared
where one has just moved the next one waits | hosts aaaa, size 4
    join b7, wait 6, ready b7, leave 3, lost a3, join c8, meet, wait 4 => nothing
""",
    "vacant": """
a ring that has just become smaller waits for more agents
    lose 2, meet, join a7, wait 4 => nothing
five seconds later a process is prepared for the seat
    lose 2, meet, join a7, wait 5 => 2@a7 is prepared
it has come to its ring, and all get an offer
    lose 2, meet, join a7, wait 5, ready a7
        => 2 form ring 0 of a0 a1 a7; 0 1 may leave for ring 2 of a0 a1 a7, where 2 changes
not all have reported that they leave: the chief has not
    lose 2, meet, join a7, wait 5, ready a7, leave 1 => nothing
the chief reports it for all
    lose 2, meet, join a7, wait 5, ready a7, leave 0 => 2 form ring 2 of a0 a1 a7
all have joined the ring
    lose 2, meet, join a7, wait 5, ready a7, leave 0, meet
        => 2 joined, 0 steps lost; 0 1 2 train on in ring 2 of a0 a1 a7
the process fails: they stay as they are, and pause
    lose 2, meet, hold, join a7, wait 5, ready a7, exit a7 => 0 1 train on in ring 1 of a0 a1; 0 1 pause
a member is lost while the process waits
    lose 2, meet, join a7, wait 5, ready a7, lose 1 => 0 leave ring 2; a7 end; 0 form ring 3 of a0
two seats are vacant: they pause | size 4
    lose 3, meet, lose 2, meet, hold, join a7, join a8, wait 5 => 0 1 pause
they have ended, and the next gang is whole | size 4
    lose 3, meet, lose 2, meet, hold, join a7, join a8, wait 5, pause, stopped 0 1
        => all paused from 42 for 0: grows to 4 members: agents are there again; 0@a0 1@a1 2@a7 3@a8 start in
        generation 2 from memory
for one agent soon after two losses they would wait for another one | size 4
    lose 3, meet, lose 2, meet, hold, join a7, wait 5 => nothing
a minute later one agent is enough | size 4
    lose 3, meet, lose 2, meet, hold, join a7, wait 65 => 0 1 pause
a member that keeps its size pauses
    lose 2, meet, hold, declare heals moves, join a7, wait 5 => 0 1 pause
the agents are gone when all have paused: they train on | size 4
    lose 3, meet, lose 2, meet, hold, join a7, join a8, wait 5, lose a7, lose a8, pause 0, pause 1 => nothing
without snapshots they stay as they are | size 4
    lose 3, meet, lose 2, meet, join a7, join a8, wait 5 => nothing
they were asked, have not paused, and are asked again after a minute | size 4
    lose 3, meet, lose 2, meet, hold, join a7, join a8, wait 5, step 90, wait 60 => 0 1 pause
not earlier | size 4
    lose 3, meet, lose 2, meet, hold, join a7, join a8, wait 5, step 90, wait 50 => nothing
between two calls of fit they stay
    lose 2, meet, hold, rest, join a7, wait 5 => nothing
a gang that formed smaller pauses | heals False, min_workers 2
    lose 2, ring 0, ring 1, wait 61, port 0, port 1, enter 0, enter 1, step 30, hold, join a7, wait 5 => 0 1 pause
a member is lost while they pause | heals False, min_workers 2
    lose 2, ring 0, ring 1, wait 61, port 0, port 1, enter 0, enter 1, step 30, hold, join a7, wait 5, signal 1
        => a0 end, for signal of 1
""",
    "standby": """
an agent is idle, and all can heal
    join a7 => 1@a7 is prepared
a member cannot heal
    unable 0, join a7 => nothing
it can now
    unable 0, join a7, able 0 => 1@a7 is prepared
as many as asked for, for other ranks | standby 2
    join a7, join a8 => 2@a8 is prepared
no more than asked for
    join a7, join a8 => nothing
none without the option | standby 0
    join a7 => nothing
a member is lost: it takes the place at once
    join a7, ready a7, signal 1 => 0 2 leave ring 0; 0 1 2 form ring 1 of a0 a7 a2
it takes the place of another rank
    join a7, ready a7, signal 2 => 0 1 leave ring 0; 2@a7 renamed; 0 1 2 form ring 1 of a0 a1 a7
of the chief too
    join a7, ready a7, signal 0 => 1 2 leave ring 0; 0@a7 renamed; 0 1 2 form ring 1 of a7 a1 a2
all have joined, and the next one starts
    join a7, ready a7, signal 1, meet
        => 1 healed, 0 steps lost; 0 1 2 train on in ring 1 of a0 a7 a2; 1@a1 is prepared
its function has read its rank: that place
    join a7, bound a7, signal 1 => 0 2 leave ring 0; 0 1 2 form ring 1 of a0 a7 a2
and no other
    join a7, bound a7, signal 2 => 0 1 leave ring 0; 2@a2 start in ring 1
it is not ready: the member's agent starts the next process
    join a7, signal 1 => 0 2 leave ring 0; 1@a1 start in ring 1
it is not ready, and has the only agent: it ends
    join a7, lose 1 => 0 2 leave ring 0; a7 end
its agent is free
    join a7, lose 1, wait 0.1, stopped a7 => 1@a7 start in ring 1
it can take another place alone, and has the only agent
    join a7, bound a7, lose 2 => 0 1 leave ring 0; a7 end
two wait, one of them for this rank alone | standby 2
    join a7, join a8, bound a7, ready a8, signal 1 => 0 2 leave ring 0; 0 1 2 form ring 1 of a0 a7 a2
its agent is lost, and another one starts
    join a7, join a8, lose a7 => 1@a8 is prepared
it has ended twice
    join a7, exit a7, exit a7 => 1@a7 is prepared
it has ended three times, and none follows
    join a7, exit a7, exit a7, exit a7 => nothing
one that has taken a place starts the count again
    join a7, exit a7, exit a7, ready a7, signal 1, meet, exit a1 => 1@a1 is prepared
it is late, and another one starts | join_timeout_s 130
    join a7, join a8, wait 131 => a7 end; 1@a8 is prepared
not yet | join_timeout_s 130
    join a7, join a8, wait 125 => nothing
its agent is drained, and it starts elsewhere
    join a7, join a8, drain a7 => a7 end; 1@a8 is prepared
a member is drained, and moves to it
    join a7, ready a7, drain 1 => 0 1 2 may leave for ring 1 of a0 a7 a2, where 1 changes
two are lost, and two wait | size 4, standby 2
    join a7, join a8, ready a7, ready a8, signal 1, signal 2 => 0 3 leave ring 1; a7 end
all return
    join a7, ready a7, return 0, return 1, return 2 => a7 end
a loop has it too | able heals
    join a7, ready a7, signal 1 => 0 2 leave ring 0; 0 1 2 form ring 1 of a0 a7 a2
""",
    "preempted": """
a run of higher priority starts: the chief saves
    preempt => 0 saves and pauses
it has saved
    preempt, save 0 => a0 a1 a2 end
all have ended
    preempt, save 0, stopped 0 1 2 => all paused from 20 for 0: preempted by run urgent
it saves nothing, and trains on
    preempt, wait 30 => nothing
they do not heal while they are to pause
    preempt, signal 1 => a0 a2 end, for signal of 1
""",
    "adopted": """
agents offer all members to the next driver: they train on
    takeover, offer 0 1, offer 2 => adopted; a2 refused
it waits for the last one
    takeover, offer 0 1, wait 3 => nothing
one is missing, and the others heal
    takeover, offer 0 1, wait 4 => adopted; 0 1 leave ring 0
the chief is missing
    takeover, offer 1 2, wait 4 => adopted; 1 2 leave ring 0
the missing one gets its next process
    takeover, offer 0 1, wait 4, join a7 => 2@a7 start in ring 1
most are missing
    takeover, offer 0, wait 4 => all restarted from None for 0: lost; a0 end
one is missing, and the others cannot heal | heals False
    takeover, offer 0 1, wait 4 => all restarted from None for 0: lost; a0 a1 end
one has been offered, and is lost again
    takeover, offer 0 1, lose a1, offer 2, wait 4 => adopted; 0 2 leave ring 0
a member was on its way into another ring
    signal 1, port 1, takeover, offer 0 1, offer 2 => nothing
that one starts again
    signal 1, port 1, takeover, offer 0 1, offer 2, wait 4 => adopted; 0 2 leave ring 0; 1@a1 start in ring 1
a ring had healed before
    signal 1, port 1, meet, takeover, offer 0 1, offer 2 => adopted; a2 refused
beside parameter servers | servers, hosts aaaaa
    takeover, offer 0 1 2 3, offer 4 => adopted; a4 refused
parameter servers of its own know members by keys of the driver before | servers, restarts_servers True, hosts aaaaa
    takeover, offer 0 1 2 3 4, wait 4
        => all restarted from None for 0: lost; 0@a0 1@a1 2@a2 3@a3 4@a4 start in generation 2
the run stops
    takeover, offer 0 1, stop => all restarted from None for 0: lost; a0 a1 end
""",
}


def rows(reason: str, text: str) -> list[Any]:
    """The rows of a table, as parameters of the test."""
    parameters = []
    for row in re.split(r"\n(?=\S)", text.strip()):
        title, _, rest = row.partition("\n")
        name, _, own_limits = title.partition(" | ")
        deeds, _, decision = " ".join(rest.split()).partition(" => ")
        limits = limits_of(LIMITS.get(reason, "")) | limits_of(own_limits)
        parameters.append(pytest.param(deeds, decision, limits, id=f"{reason}: {name}"))
    return parameters


def limits_of(text: str) -> dict[str, Any]:
    """Options of the run, separated by commas; `servers`: beside a parameter server, with an evaluator."""
    limits: dict[str, Any] = {}
    for option in filter(None, text.split(", ")):
        name, _, value = option.partition(" ")
        if name == "servers":
            limits |= {"roles": SERVERS, "restarts_members": True, "hosts": "hhhhh"}
        else:
            limits[name] = int(value) if value.isdigit() else {"True": True, "False": False}.get(value, value)
    return limits


@pytest.mark.parametrize(
    ("deeds", "decision", "limits"), [row for reason, text in TABLES.items() for row in rows(reason, text)]
)
def test_each_situation_has_its_decision(deeds: str, decision: str, limits: dict[str, Any]) -> None:
    assert (Situation(**limits).do(deeds) or "nothing") == decision
