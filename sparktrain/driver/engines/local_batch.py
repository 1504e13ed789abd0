"""A batch of agents on this machine: one nursery forks them, and the batch restarts those that are lost."""

import select
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import Struct

from sparktrain.base.clock import Clock, SystemClock
from sparktrain.base.ids import SparkTask
from sparktrain.cluster.import_failures import Missing
from sparktrain.driver.engines.engine import AgentBatch, JobEnd, OnBatchEnd
from sparktrain.driver.engines.nursery_process import NURSERIES, NurseryImports, NurseryProcess
from sparktrain.errors import ProtocolError
from sparktrain.protocol import nursery_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.usercode.preload import libraries

SHORT_LIFE_S = 10.0
"""An agent that is lost sooner had a short life: perhaps it cannot run here."""
MOST_SHORT_LIVES = 8
"""Short lives in a row, of one slot, after which its batch is given up: about 16 s with the pauses between them."""
FIRST_PAUSE_S = 0.25
"""Before the second restart after a short life, and twice as long before each later one; the first has no pause."""


@dataclass
class _Life:
    started_at: float = 0.0
    short_lives: int = 0
    due: float | None = None


@dataclass
class Restarts:
    """Schedules the starts of the agents of one batch. All methods belong to one thread."""

    most_short_lives: int = MOST_SHORT_LIVES
    _lives: dict[int, _Life] = field(default_factory=dict)

    def started(self, slot: int, now: float) -> None:
        """Note that the agent of `slot` has started."""
        life = self._lives.setdefault(slot, _Life())
        life.started_at = now
        life.due = None

    def lost(self, slot: int, now: float) -> bool:
        """Note that the agent of `slot` lost its process; returns whether it restarts."""
        life = self._lives[slot]
        life.short_lives = life.short_lives + 1 if now - life.started_at < SHORT_LIFE_S else 1
        if life.short_lives >= self.most_short_lives:
            return False
        life.due = now + (FIRST_PAUSE_S * 2.0 ** (life.short_lives - 2) if life.short_lives > 1 else 0.0)
        return True

    def due(self, now: float) -> list[int]:
        """The slots in which an agent starts now."""
        return sorted(slot for slot, life in self._lives.items() if life.due is not None and life.due <= now)

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next start; None when none is pending."""
        pending = [life.due for life in self._lives.values() if life.due is not None]
        return max(0.0, min(pending) - now) if pending else None


CANCEL_S = 8.0
"""How long `LocalBatch.cancel` waits for the nursery, which gives agents 5 s and then kills them."""
STAGE = 0
"""The stage of all agents of this machine; Spark has one for each job."""


class AgentPlace(Struct, frozen=True):
    """The cores and GPUs that an agent of this machine may use."""

    cpus: int
    gpus: tuple[str, ...] | None
    """None where this machine has none."""
    gpu_totals: tuple[int, ...] = ()
    """MiB of each of them, where agents share them."""


class LocalBatch(AgentBatch):
    """Agents of one pool on this machine."""

    def __init__(
        self,
        ticket: AgentTicket,
        places: Mapping[int, AgentPlace],
        on_end: OnBatchEnd,
        losses: dict[int, str],
        tasks: Iterator[int],
        *,
        restarts: Restarts | None = None,
        nursery: NurseryProcess | None = None,
    ) -> None:
        """`places` is by slot. `losses` receives why agents were lost, by their numbers, which come from `tasks`.

        A given `nursery` runs already; the batch closes it, or keeps it for the next one.
        """
        self._ticket = ticket
        self._places = places
        self._on_end = on_end
        self._losses = losses
        self._tasks = tasks
        self._clock: Clock = SystemClock()
        self._restarts = restarts or Restarts()
        self._exits: dict[int, tuple[int, str, bool]] = {}
        """The exits of agents that have left, by slot."""
        self._thread = threading.Thread(target=self._work, name=f"sparktrain-{ticket.pool}", daemon=True)
        first = next(iter(places.values()))
        # A library may look at GPUs when it is imported, and the nursery has those of no slot.
        imports = NurseryImports(libraries(ticket.preload) if first.gpus is None else (), first.cpus)
        self._nursery = nursery or NURSERIES.take(imports)
        self._nursery.imports = imports
        self._is_kept = False
        self._is_canceled = False
        self._lock = threading.Lock()
        """Guards that a nursery which is kept for another batch is not ended, and that none starts after `cancel`."""

    def start(self) -> None:
        """See base class."""
        self._thread.start()

    def lacking(self) -> Missing | None:
        """None: agents run the driver's own Python."""
        return None

    def vacant(self) -> set[int]:
        """See base class."""
        return set(self._exits) if self._thread.is_alive() else set(self._places)

    def cancel(self) -> None:
        """See base class."""
        with self._lock:
            self._is_canceled = True
            if not self._is_kept:
                self._nursery.hang_up()
        if not self.join(CANCEL_S):
            self._nursery.kill()

    def join(self, timeout_s: float) -> bool:
        """See base class."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- in the thread of the batch

    def _work(self) -> None:
        """Keep agents in all slots until they leave, and report how the batch ended."""
        try:
            error = self._attend()
            if error is None and len(self._exits) < len(self._places) and self._imports_less():
                error = self._attend()
            if error is None and len(self._exits) < len(self._places):
                self._nursery.hang_up()
                error = f"the process that starts them {_ending(self._nursery.wait())}{self._nursery.last_line()}"
        except (OSError, ProtocolError) as failed:
            error = f"{type(failed).__name__}: {failed}"
        with self._lock:
            self._is_kept = error is None
        if self._is_kept:
            NURSERIES.keep(self._nursery)
        else:
            self._nursery.close()
        self._on_end(JobEnd(tuple(self._exits.values()), error))

    def _imports_less(self) -> bool:
        """Take a nursery without imports in place of one that has ended, once; whether that is done."""
        # An import may end its process. Then each zygote imports by itself, and continues without what ends it.
        with self._lock:
            imports = self._nursery.imports
            if self._is_canceled or not imports.modules:
                return False
            self._nursery.close()
            self._nursery = NurseryProcess(NurseryImports((), imports.cpus))
            return True

    def _attend(self) -> str | None:
        """Keep agents in all slots; return why the batch is given up, None when all left or the nursery ended."""
        self._nursery.start()
        pipe: BlockingPipe[m.FromNursery] = BlockingPipe(self._nursery.control, m.FromNursery)
        for slot in [slot for slot in self._places if slot not in self._exits]:
            self._spawn(pipe, slot)
        while len(self._exits) < len(self._places) and not pipe.ended:
            select.select([pipe], [], [], self._restarts.wait_s(self._clock.now()))
            while (exited := pipe.poll()) is not None:
                if (error := self._take(exited)) is not None:
                    return error
            for slot in self._restarts.due(self._clock.now()):
                self._spawn(pipe, slot)
        return None

    def _spawn(self, pipe: BlockingPipe[m.FromNursery], slot: int) -> None:
        place = self._places[slot]
        task = SparkTask(STAGE, next(self._tasks))
        self._restarts.started(slot, self._clock.now())
        with suppress(BrokenPipeError):  # the nursery has ended, which the next read detects
            pipe.send(
                m.SpawnAgent(
                    slot=slot,
                    task=task,
                    ticket=self._ticket,
                    cpus=place.cpus,
                    gpus=place.gpus,
                    gpu_totals=place.gpu_totals,
                    preload=self._nursery.imports.modules,
                )
            )

    def _take(self, exited: m.AgentExited) -> str | None:
        if exited.status == 0:
            self._exits[exited.slot] = exited.slot, exited.reason, exited.reached
            return None
        how = f"local agent {_ending(exited.status)}"
        if exited.status == -signal.SIGKILL and exited.memory_kills == 0:
            how += " from outside of sparktrain, and not for lack of memory"
        how += self._nursery.last_line() if exited.status > 0 else ""
        self._losses[exited.task.id] = how
        again = self._restarts.lost(exited.slot, self._clock.now())
        return None if again else f"slot {exited.slot}: {how}, again and again"


def _ending(status: int) -> str:
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was ended by signal {-status}"
