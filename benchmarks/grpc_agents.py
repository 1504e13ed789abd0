"""200 agents over gRPC and mutual TLS on the loopback interface run 2,000 trials, without one error.

    python -m benchmarks.grpc_agents [--agents 200] [--processes 4] [--trials 2000]

Connections, certificates, messages, uploads and the coordinator are real. There is no Spark: the agents live in a few
processes, answer each start at once, and upload a log of two lines, several at a time. For comparison, the same over
the in-memory transport, in one process.
"""

import argparse
import asyncio
import logging
import multiprocessing
import resource
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.load import CountingCoordinator, SimulatedAgent, Tally, work_of
from benchmarks.machine import at_most, show
from sparktrain.base.clock import SystemClock
from sparktrain.driver.agent_server import Server
from sparktrain.protocol.certificates import issue
from sparktrain.protocol.grpc import GrpcDialer, GrpcListener
from sparktrain.protocol.memory_transport import MemoryTransport
from sparktrain.protocol.ticket import AgentTicket
from sparktrain.protocol.transport import Dialer, Listener

LOG = b"epoch 1: loss 0.5\nepoch 2: loss 0.25\n"
JOIN_TIMEOUT_S = 120.0

Crowd = Callable[[int], Awaitable[list[Tally]]]
"""Agents that dial a port of the loopback interface, and what they have seen when they are dismissed."""


@dataclass(frozen=True)
class Phase:
    """Of the coordinator's process."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Load:
    """What was measured."""

    joining: Phase
    running: Phase
    messages: int
    errors: int
    missing_logs: int


class Complaints(logging.Handler):
    """Counts what a run should not log: warnings of sparktrain, errors of the event loop. Prints the first."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.count == 1:
            print(self.format(record))


@contextmanager
def complaints() -> Iterator[Complaints]:
    heard, loggers = Complaints(), [logging.getLogger(name) for name in ("sparktrain", "asyncio")]
    for logger in loggers:
        logger.addHandler(heard)
    yield heard
    for logger in loggers:
        logger.removeHandler(heard)


async def measure(listener: Listener, crowd: Crowd, agents: int, trials: int) -> Load:
    """Have all agents of `crowd` join, then run the trials."""
    clock = SystemClock()
    coordinator = CountingCoordinator(Server(listener, clock, {}, ()), clock, agents)
    _, port = await coordinator.open()
    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder, complaints() as heard:
        read = stopwatch()
        tallying = asyncio.ensure_future(crowd(port))
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            await coordinator.complete.wait()
        joining, read = read(), stopwatch()
        ran = await coordinator.run(work_of(folder, trials, agents))
        running = read()
        await coordinator.close("measured")
        tallies = await tallying
        missing_logs = trials - stored_logs(folder)
    smooth = [trial for trial in ran.trials if trial.status == "succeeded" and trial.generations == 1]
    errors = heard.count + trials - len(smooth) + agents - sum(tally.dismissed for tally in tallies)
    return Load(joining, running, sum(tally.messages for tally in tallies), errors, missing_logs)


def stored_logs(folder: str) -> int:
    """Logs that arrived whole."""
    return sum(path.read_bytes() == LOG for path in Path(folder).rglob("log.txt"))


def stopwatch() -> Callable[[], Phase]:
    """Returns a function of the time since this call."""
    clock, started_at, used = SystemClock(), SystemClock().now(), _cpu_s()
    return lambda: Phase(clock.now() - started_at, _cpu_s() - used)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# ---- the agents


async def attend(dialers: Iterable[tuple[int, Dialer]]) -> list[Tally]:
    """Be the agents of these slots until they are dismissed."""
    return await asyncio.gather(*(SimulatedAgent(dialer, slot, SystemClock(), LOG).run() for slot, dialer in dialers))


def process(pipe: Connection, slots: range) -> None:
    """What runs in a process of agents: it reports when it is ready, and gets the ticket."""
    pipe.send(None)
    ticket = pipe.recv()
    pipe.send(asyncio.run(_dial(ticket, slots)))


async def _dial(ticket: AgentTicket, slots: range) -> list[Tally]:
    return await attend((slot, GrpcDialer(ticket)) for slot in slots)


async def over_grpc(agents: int, processes: int, trials: int) -> Load:
    certificates = issue("load")
    spawning = multiprocessing.get_context("spawn")
    pipes = []
    for number in range(processes):
        ours, theirs = spawning.Pipe()
        slots = range(number, agents, processes)
        spawning.Process(target=process, args=(theirs, slots), daemon=True).start()
        theirs.close()
        ours.recv()
        pipes.append(ours)

    async def crowd(port: int) -> list[Tally]:
        for pipe in pipes:
            pipe.send(AgentTicket("load", ("127.0.0.1",), port, certificates.agent))
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(processes) as waiting:  # its own threads, for the coordinator needs the loop's
            found = await asyncio.gather(*(loop.run_in_executor(waiting, pipe.recv) for pipe in pipes))
        return [tally for tallies in found for tally in tallies]

    return await measure(GrpcListener("127.0.0.1", (0,), certificates.server), crowd, agents, trials)


async def in_memory(agents: int, trials: int) -> Load:
    transport = MemoryTransport()

    async def crowd(port: int) -> list[Tally]:
        return await attend((slot, transport.dialer()) for slot in range(agents))

    return await measure(transport.listener, crowd, agents, trials)


ROWS = (
    "errors",
    "logs that are missing or not whole",
    "all joined after",
    "coordinator's CPU for each join",
    "all trials ran in",
    "messages/s",
    "uploads/s",
    "coordinator's CPU for each trial",
)


def column(load: Load, agents: int, trials: int) -> tuple[str, ...]:
    """The cells of `ROWS`."""
    joining, running = load.joining, load.running
    return (
        str(load.errors),
        str(load.missing_logs),
        f"{joining.seconds:.2f} s",
        f"{1000 * joining.cpu_s / agents:.1f} ms",
        f"{running.seconds:.2f} s",
        f"{load.messages / running.seconds:,.0f}",
        f"{trials / running.seconds:,.0f}",
        f"{1000 * running.cpu_s / trials:.2f} ms",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--trials", type=int, default=2000)
    given = parser.parse_args()
    memory = asyncio.run(in_memory(given.agents, given.trials))
    load = asyncio.run(over_grpc(given.agents, given.processes, given.trials))
    columns = [column(each, given.agents, given.trials) for each in (load, memory)]
    targets = [at_most(load.errors, 0), at_most(load.missing_logs, 0), *[""] * (len(ROWS) - 2)]
    title = f"{given.agents:,} simulated agents in {given.processes} processes, {given.trials:,} trials"
    note = "In memory, the agents' share of the processor is counted as the coordinator's."
    rows = zip(ROWS, *columns, targets, strict=True)
    show(title, ("", "gRPC", "in memory", "target"), rows, note)


if __name__ == "__main__":
    main()
