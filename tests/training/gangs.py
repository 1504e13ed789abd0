"""Gangs of real processes for tests: each member forked from one process that has imported TensorFlow and run no op.

    [result_of_rank_0, result_of_rank_1] = run_gang(functions.train, 2, "tensorflow", steps=3)

`function` is a top-level function of a module that can be imported; its parameters `ring`, `joining`, `rank`, `backend`
are filled in, the others come from the call. A function that names `joining` joins by itself; for any other that names
`ring` the ring is joined before and closed after it. What it returns travels as JSON; numpy arrays become lists.

The process that forks is started at the first call and lives as long as the tests: pytest itself must never fork, for
it may have run an op. It imports Horovod when the first gang asks for it, and the module of each function, which must
run no op at its import.
"""

import atexit
import importlib
import inspect
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparktrain.base import deferred_wrappers, process_tree
from sparktrain.base.clock import SystemClock
from sparktrain.config.backends import BACKENDS, Backend
from sparktrain.config.gang_spec import Role
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import BlockingPipe
from sparktrain.protocol.messages import Message
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training import forkable
from sparktrain.training.collectives.backend import Joining, load
from sparktrain.training.collectives.barrier import HeldPort

ROOT = Path(__file__).parents[2]
RING_TIMEOUT_S = 20.0
GANG_TIMEOUT_S = 90.0

_ADDRESS = "127.0.0.1"


class Wanted(Message, frozen=True, tag=True):
    """A gang to run."""

    function: str
    hosts: tuple[str, ...]
    """By rank: the name of the host that the member believes to be on."""
    backend: str
    params: dict[str, Any]
    ring_timeout_s: float


class Bound(Message, frozen=True, tag=True):
    """The port that a member holds."""

    port: int


class Form(Message, frozen=True, tag=True):
    """The ports of all members, by rank."""

    ports: tuple[int, ...]


class Ended(Message, frozen=True, tag=True):
    """How one member ended."""

    result: Any = None
    error: str | None = None
    """The traceback, or how the process died."""


class AllEnded(Message, frozen=True, tag=True):
    """How each member ended, by rank."""

    ends: tuple[Ended, ...]


class GangError(AssertionError):
    """A member of a gang raised, or died."""


def run_gang(function: Callable[..., Any], k: int, backend: str, **params: Any) -> list[Any]:
    """What `function` returned in each of `k` members, by rank. Raises GangError when one of them did not end well."""
    ends = gang_ends(function, ["here"] * k, backend, **params)
    wrong = [f"--- rank {rank}\n{end.error}" for rank, end in enumerate(ends) if end.error is not None]
    if wrong:
        raise GangError("\n".join(wrong))
    return [end.result for end in ends]


def gang_ends(
    function: Callable[..., Any],
    hosts: Sequence[str],
    backend: str,
    ring_timeout_s: float = RING_TIMEOUT_S,
    **params: Any,
) -> list[Ended]:
    """How each member ended, by rank; for gangs that must fail, or have members on several `hosts`."""
    wanted = Wanted(f"{function.__module__}:{function.__qualname__}", tuple(hosts), backend, params, ring_timeout_s)
    return list(_Stem.running().call(wanted))


class _Stem:
    """The process that forks, seen from the tests."""

    _one: "_Stem | None" = None

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = [sys.executable, "-m", "tests.training.gangs", str(os.getpid())]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs, cwd=ROOT, env=environment)
        ours.settimeout(GANG_TIMEOUT_S + 30)
        self._pipe: BlockingPipe[AllEnded] = BlockingPipe(ours, AllEnded)

    @classmethod
    def running(cls) -> "_Stem":
        if cls._one is None:
            cls._one = cls()
            atexit.register(cls._one.end)
        return cls._one

    def call(self, wanted: Wanted) -> tuple[Ended, ...]:
        try:
            self._pipe.send(wanted)
            answer = self._pipe.receive()
        except BaseException:  # a test's own deadline, too: an answer that comes late must not reach the next test
            _Stem._one = None
            self._process.kill()
            self.end()
            raise
        assert answer is not None, "the process that forks gangs has died: see its stderr"
        return answer.ends

    def end(self) -> None:
        self._pipe.close()
        self._process.wait(10)
        atexit.unregister(self.end)


class _SocketExchange:
    """The exchange of a member over the socket pair made for its fork."""

    def __init__(self, pipe: BlockingPipe[m.SharedValue | Form]) -> None:
        self._pipe = pipe
        self._clock = SystemClock()

    def share(self, key: str, value: bytes) -> None:
        self._pipe.send(m.SharedValue(key, value))

    def shared(self, timeout_s: float) -> tuple[str, bytes] | None:
        until = self._clock.now() + timeout_s
        while (message := self._pipe.poll()) is None:
            left = until - self._clock.now()
            if left <= 0 or self._pipe.ended or not select.select([self._pipe], [], [], left)[0]:
                return None
        assert isinstance(message, m.SharedValue)
        return message.key, message.value


class _Gang:
    """Members of one call, in the process that forks."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._pipes: list[BlockingPipe[m.SharedValue | Bound | Ended]] = []
        self._pids: list[int] = []
        self._ports: dict[int, int] = {}
        self._ends: dict[int, Ended] = {}

    def run(self) -> AllEnded:
        for rank in range(len(self._wanted.hosts)):
            self._fork(rank)
        self._relay()
        for rank, pid in enumerate(self._pids):
            if not self._pipes[rank].ended:
                os.waitpid(pid, 0)
            self._pipes[rank].close()
        return AllEnded(tuple(self._ends[rank] for rank in range(len(self._pids))))

    def _fork(self, rank: int) -> None:
        ours, theirs = socket.socketpair()
        stem = os.getpid()
        if (pid := os.fork()) == 0:
            process_tree.die_with_parent(signal.SIGKILL, stem)
            ours.close()
            for pipe in self._pipes:
                pipe.close()
            _be_member(self._wanted, rank, BlockingPipe(theirs, m.SharedValue | Form))
        theirs.close()
        self._pipes.append(BlockingPipe(ours, m.SharedValue | Bound | Ended))
        self._pids.append(pid)

    def _relay(self) -> None:
        """Pass on what members share, until all have ended."""
        clock = SystemClock()
        until = clock.now() + GANG_TIMEOUT_S
        while len(self._ends) < len(self._pipes):
            waiting = [pipe for rank, pipe in enumerate(self._pipes) if rank not in self._ends]
            if not select.select(waiting, [], [], max(0.0, until - clock.now()))[0]:
                for rank in self._ends.keys() ^ set(range(len(self._pids))):
                    os.kill(self._pids[rank], signal.SIGABRT)  # faulthandler shows where it hangs
                until += 5
            for rank, pipe in enumerate(self._pipes):
                while rank not in self._ends and (message := pipe.poll()) is not None:
                    self._take(rank, message)
                if pipe.ended and rank not in self._ends:
                    status = os.waitstatus_to_exitcode(os.waitpid(self._pids[rank], 0)[1])
                    self._ends[rank] = Ended(error=f"the process ended with status {status}")

    def _take(self, rank: int, message: m.SharedValue | Bound | Ended) -> None:
        match message:
            case Ended():
                self._ends[rank] = message
            case Bound(port=port):
                self._ports[rank] = port
                if len(self._ports) == len(self._pipes):
                    ports = tuple(self._ports[each] for each in range(len(self._pipes)))
                    self._send(set(range(len(self._pipes))), Form(ports))
            case m.SharedValue():
                self._send(set(range(len(self._pipes))) - {rank}, message)

    def _send(self, ranks: set[int], message: m.SharedValue | Form) -> None:
        for rank in ranks - self._ends.keys():
            with suppress(OSError):  # a member that is dead: noticed where its end is read
                self._pipes[rank].send(message)


def _be_member(wanted: Wanted, rank: int, pipe: BlockingPipe[m.SharedValue | Form]) -> None:
    """The life of a forked member; does not return."""
    try:
        held = HeldPort(_ADDRESS)
        pipe.send(Bound(held.number))
        form = pipe.receive()
        assert isinstance(form, Form)
        roles = [Role.CHIEF, *[Role.WORKER] * len(form.ports)]
        places = tuple(map(MemberAddress, wanted.hosts, [_ADDRESS] * len(form.ports), form.ports, roles))
        joining = Joining(
            formation=Formation(rank, places),
            exchange=_SocketExchange(pipe),
            release_port=held.release,
            timeout_s=wanted.ring_timeout_s,
            take_port=held.take,
        )
        end = Ended(result=_plain(_call(wanted, joining)))
    except BaseException:
        end = Ended(error=traceback.format_exc())
    try:
        pipe.send(end)
        sys.stdout.flush()
        sys.stderr.flush()
        process_tree.flush_native()
    finally:
        os._exit(0)


def _call(wanted: Wanted, joining: Joining) -> Any:
    module, _, name = wanted.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    named = inspect.signature(function).parameters
    filled: dict[str, Any] = {"joining": joining, "rank": joining.formation.rank, "backend": wanted.backend}
    ring = load(Backend(wanted.backend))(joining) if "ring" in named and "joining" not in named else None
    filled["ring"] = ring
    result = function(**wanted.params, **{key: value for key, value in filled.items() if key in named})
    if ring is not None:
        ring.close()
    return result


def _plain(value: Any) -> Any:
    """`value` as JSON can carry it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _stem(parent: int) -> None:
    process_tree.die_with_parent(signal.SIGTERM, parent)
    deferred_wrappers.defer()
    forkable.preload(["tensorflow", "keras"])
    with socket.socket(fileno=os.dup(0)) as sock:
        pipe: BlockingPipe[Wanted] = BlockingPipe(sock, Wanted)
        while (wanted := pipe.receive()) is not None:
            facts = BACKENDS[Backend(wanted.backend)]
            ring = [f"sparktrain.training.frameworks.{facts.ring}"] if facts.ring else []
            forkable.preload([*facts.preload, *ring, wanted.function.partition(":")[0]])  # a member reports what fails
            pipe.send(_Gang(wanted).run())


if __name__ == "__main__":
    import faulthandler

    faulthandler.enable()
    _stem(int(sys.argv[1]))
