"""Gangs of TensorFlow's own cluster for tests: members forked from one process that has imported TensorFlow alone.

    ends = run(functions.train, ("chief", "worker"), steps=3)

`function` is a top-level function of a module that can be imported, and takes a `Member`. What it returns travels as
JSON. As an agent would, the process that forks ends the servers when all others have ended, and reports how long they
took to end.
"""

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparktrain.base import deferred_wrappers, process_tree
from sparktrain.base.clock import SystemClock
from sparktrain.config.backends import Backend
from sparktrain.config.gang_spec import Role
from sparktrain.errors import SparktrainError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training import forkable
from sparktrain.training.collectives.ring_errors import is_loss
from sparktrain.training.frameworks.tensorflow.strategies import tf_cluster
from sparktrain.training.frameworks.tensorflow.strategies.strategy import Strategies

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 90.0


@dataclass(frozen=True)
class End:
    """How a member ended."""

    result: Any = None
    error: str = ""
    """Name and text of what it raised."""
    lost: bool = False
    """Whether it raised what `is_loss` recognises."""
    status: int = 0
    """Of its process, as of `os.waitstatus_to_exitcode`."""
    ended_s: float = 0.0
    """For a server, from the signal to its end; for any other, from the fork."""


@dataclass
class Member:
    """What a function under test gets: the parts of a context that are TensorFlow's."""

    formation: Formation
    strategies: Strategies
    pids: tuple[int, ...]
    """Of the members before this one, by rank."""
    params: dict[str, Any]
    listened: list[bool]
    """At each release of this member's port, whether a server listened there already."""

    @property
    def strategy(self) -> Callable[..., Any]:
        return self.strategies.strategy


def run(
    function: Callable[[Member], Any],
    roles: Sequence[str],
    backend: str = "tensorflow",
    timeout_s: float = 30.0,
    **params: Any,
) -> list[End]:
    """How each member ended, by rank."""
    wanted = {"function": f"{function.__module__}:{function.__qualname__}", "roles": list(roles), "backend": backend}
    stem = _Stem.running()
    return [End(**each) for each in stem.call(wanted | {"timeout_s": timeout_s, "params": params})]


def results(function: Callable[[Member], Any], roles: Sequence[str], **params: Any) -> list[Any]:
    """What each member returned, by rank; None of a server. AssertionError when one raised or died."""
    ends = run(function, roles, **params)
    wrong = [end for end in ends if end.error or end.status not in (0, -signal.SIGTERM)]
    assert not wrong, wrong
    return [end.result for end in ends]


class _Stem:
    _one: "_Stem | None" = None

    def __init__(self) -> None:
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "tests.training.clusters", str(os.getpid())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )

    @classmethod
    def running(cls) -> "_Stem":
        if cls._one is None:
            cls._one = cls()
            atexit.register(cls._one.close)
        return cls._one

    def call(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        _Stem._one = None  # until it has answered: the next test must not read what a test has left at its time limit
        answer = self._process.stdout.readline()
        _Stem._one = self
        assert answer, "the process that forks the members has died"
        ends: list[dict[str, Any]] = json.loads(answer)
        return ends

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


# ---- in the process that forks


def main() -> None:
    process_tree.die_with_parent(signal.SIGKILL, int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    deferred_wrappers.defer()
    forkable.preload(["keras", "tensorflow", "numpy"])
    for line in sys.stdin:
        wanted = json.loads(line)
        forkable.preload([wanted["function"].partition(":")[0]])
        answers.write(json.dumps(_run(wanted)) + "\n")
        answers.flush()


def _run(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    roles = [Role(role) for role in wanted["roles"]]
    held = [_hold() for _ in roles]
    places = tuple(
        MemberAddress("here", "127.0.0.1", s.getsockname()[1], role) for s, role in zip(held, roles, strict=True)
    )
    pids: list[int] = []
    pipes = []
    for rank in range(len(roles)):
        reading, writing = os.pipe()
        if (pid := os.fork()) == 0:
            for other in (*held[:rank], *held[rank + 1 :]):
                other.close()
            _live(Formation(rank, places), wanted, held[rank], tuple(pids), writing)
        os.close(writing)
        pids.append(pid)
        pipes.append(reading)
    for each in held:
        each.close()
    return _gather(places, pids, pipes, set(wanted["params"].get("idle", ())))


def _hold() -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    return held


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return False
    return True


def _live(formation: Formation, wanted: dict[str, Any], held: socket.socket, pids: tuple[int, ...], fd: int) -> None:
    end: dict[str, Any] = {}
    try:
        process_tree.die_with_parent(signal.SIGKILL, os.getppid())
        os.environ["TF_CONFIG"] = formation.tf_config()
        backend = Backend(wanted["backend"])
        listened: list[bool] = []

        def release() -> None:
            listened.append(_listens(formation.mine.port))
            held.close()

        if backend is Backend.TENSORFLOW and formation.is_server:
            tf_cluster.serve_cluster(formation, release)
        strategies = Strategies(formation, backend, release, timeout_s=wanted["timeout_s"], clock=SystemClock())
        module, _, name = wanted["function"].partition(":")
        member = Member(formation, strategies, pids, wanted["params"], listened)
        end = {"result": getattr(importlib.import_module(module), name)(member)}
    except BaseException as error:
        if not isinstance(error, SparktrainError):
            traceback.print_exc()
        end = {"error": f"{type(error).__name__}: {error}", "lost": is_loss(error)}
    finally:
        os.write(fd, json.dumps(end).encode())
        sys.stdout.flush()
        os._exit(0)


def _gather(
    places: tuple[MemberAddress, ...], pids: list[int], pipes: list[int], idle: set[int]
) -> list[dict[str, Any]]:
    """As an agent: wait for those that train, then end servers and `idle` ranks; end all when the time is over."""
    clock, started = SystemClock(), SystemClock().now()
    serving = {rank for rank in range(len(pids)) if Formation(rank, places).is_server or rank in idle}
    texts = dict.fromkeys(range(len(pids)), b"")
    left = set(texts) - serving
    while left and clock.now() < started + TIMEOUT_S:
        ready, _, _ = select.select([pipes[rank] for rank in left], [], [], 1.0)
        for rank in [rank for rank in left if pipes[rank] in ready]:
            text = os.read(pipes[rank], 65536)
            texts[rank] += text
            left -= set() if text else {rank}
    for rank in left:
        os.kill(pids[rank], signal.SIGKILL)
    ended: list[dict[str, Any]] = [{} for _ in pids]
    for rank in sorted(texts, key=lambda rank: rank in serving):
        since = clock.now() if rank in serving else started
        if rank in serving:
            os.kill(pids[rank], signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1])
        os.close(pipes[rank])
        answer = json.loads(texts[rank] or b"{}")
        ended[rank] = answer | {"status": status, "ended_s": round(clock.now() - since, 3)}
    return ended


if __name__ == "__main__":
    main()
