"""The nursery of a local run: imports once what zygotes import, forks an agent for each slot, and reports their ends.

It runs as `python -m sparktrain.executor.nursery DRIVER_PID` with a socket as stdin. It has one thread and runs no op,
so that a fork of it is as good as a fresh process that has imported the same: an agent, which forks its zygote before
it imports gRPC. It ends with its driver, however the driver ends, and its agents end with it. While it imports, which
may take minutes, the kernel ends it with the driver's thread that waits for it.
"""

import importlib
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from typing import NoReturn

import msgspec

from sparktrain.base import deferred_wrappers, process_tree
from sparktrain.base.clock import Clock, SystemClock, pause
from sparktrain.base.decoding import from_json
from sparktrain.executor.spark_task import local_placement
from sparktrain.executor.warm_zygote import started
from sparktrain.executor.zygote_process import resource_limits
from sparktrain.protocol import nursery_messages as m
from sparktrain.protocol.frames import BlockingPipe

PARENT_S = 1.0
"""Interval at which the nursery checks that its driver lives: a child of the driver may hold the socket open."""
LEAVE_S = 5.0
"""How long agents may take to end their members and to leave after the driver has ended."""
_POLL_S = 0.01
_MEMBERS = "sparktrain.training.member"
_MEMORY = "sparktrain.training.forkable"
"""By their names, as zygotes are started: the code of agents and that of members do not import each other."""


class AgentLeft(msgspec.Struct, frozen=True):
    """The message that an agent writes to its pipe when it leaves."""

    reason: str
    reached: bool


class Nursery:
    """Parent of the agents of one batch. All methods belong to the main thread."""

    def __init__(self, control: BlockingPipe[m.ToNursery], driver: int, clock: Clock) -> None:
        self._control = control
        self._driver = driver
        self._clock = clock
        self._agents: dict[int, tuple[int, m.SpawnAgent, int | None]] = {}
        """The process and the order of each agent, by the file descriptor from which the nursery reads its pipe."""
        self._has_imported = False

    def serve(self) -> None:
        """Obey the driver until it ends, then end the agents. Forked agents never return from here."""
        try:
            # A child of the driver may hold the socket open after the driver's death; the parent's number shows that
            # death, too.
            while not self._control.ended and os.getppid() == self._driver:
                ready, _, _ = select.select([self._control.fileno(), *self._agents], [], [], PARENT_S)
                for pipe in self._agents.keys() & ready:
                    self._conclude(pipe)
                while (order := self._control.poll()) is not None:
                    self._spawn(order)
        except OSError:
            traceback.print_exc()  # the driver died while a message was on its way
        finally:
            self._end()

    def _import(self, order: m.SpawnAgent) -> None:
        """Import what all zygotes of the batch do, with the limits of their threads, before the first agent."""
        if self._has_imported:
            return
        self._has_imported = True
        process_tree.die_with_parent(signal.SIGTERM, self._driver)
        limits = resource_limits(order.cpus)
        os.environ.update(limits)
        if "MALLOC_ARENA_MAX" in limits:  # else glibc has read the user's at the start of this process
            process_tree.limit_arenas(int(limits["MALLOC_ARENA_MAX"]))
        importlib.import_module(_MEMORY).preload(order.preload)
        process_tree.die_with_parent(0, self._driver)

    def _spawn(self, order: m.SpawnAgent) -> None:
        self._import(order)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        nursery = os.getpid()
        # What the buffer holds would be written by the child once more.
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: numpy's idle threads are no hazard
            pid = os.fork()
        if pid == 0:
            self._forget(reading)
            _be_agent(order, writing, nursery)
        os.close(writing)
        self._agents[reading] = pid, order, process_tree.memory_kills()

    def _forget(self, reading: int) -> None:
        """Close the descriptors of the nursery, in a forked agent."""
        self._control.close()
        for pipe in (reading, *self._agents):
            os.close(pipe)

    def _conclude(self, pipe: int) -> None:
        """Reap an agent that has closed its pipe, because it left or died, and report its end."""
        pid, order, kills_before = self._agents.pop(pipe)
        memory_kills = process_tree.memory_kills_since(kills_before)
        with open(pipe, "rb") as file:
            written = file.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        departure = from_json(written, AgentLeft) if status == 0 else AgentLeft("", False)
        self._control.send(
            m.AgentExited(order.slot, order.task, status, departure.reason, departure.reached, memory_kills)
        )

    def _end(self) -> None:
        """End every agent: by SIGINT, at which it ends its members and removes its files, and later by SIGKILL."""
        pids = {pid for pid, *_ in self._agents.values()}
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        until = self._clock.now() + LEAVE_S
        while pids and self._clock.now() < until:
            pids = {pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0}
            pause(_POLL_S)
        process_tree.cull(pids)


def _be_agent(order: m.SpawnAgent, pipe: int, nursery: int) -> NoReturn:
    """Run one agent until its pool closes, write to `pipe` why it left, and exit."""
    status = 1
    try:
        process_tree.die_with_parent(signal.SIGKILL, nursery)
        process_tree.name_process("sparktrain-agent")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if order.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(order.gpus)
        warm, folder = started(order.cpus, forked=True)
        from sparktrain.executor.agent import attend

        place = local_placement(order.slot, order.task, order.cpus, order.gpus or (), order.gpu_totals)
        reason, reached = attend(place, order.ticket, warm, folder)
        os.write(pipe, msgspec.json.encode(AgentLeft(reason, reached)))
        status = 0
    except KeyboardInterrupt:
        pass  # the nursery is ending
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Run the nursery until its driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    sock = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    deferred_wrappers.defer()
    importlib.import_module(_MEMBERS)
    Nursery(BlockingPipe(sock, m.ToNursery), int(sys.argv[1]), SystemClock()).serve()


if __name__ == "__main__":
    main()
