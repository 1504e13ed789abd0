"""The agent's side of the zygote and its members: starts them, exchanges messages, and ends them completely."""

import asyncio
import gc
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from sparktrain.base import process_tree
from sparktrain.base.control_groups import available_cores
from sparktrain.errors import InfraError, ProtocolError
from sparktrain.executor.log_tail import tail_lines
from sparktrain.protocol import pipe_messages as m
from sparktrain.protocol.frames import AsyncPipe
from sparktrain.store.hadoop import token_file

ANSWER_TIMEOUT_S = 300.0
"""The timeout of a `Preload` or a `Fork`: a cold import of TensorFlow from a network file system takes minutes."""
END_TIMEOUT_S = 2.5
"""How long the zygote may take to end before it is killed; it needs at most 1.5 s for its descendants."""

_POLL_S = 0.005
_POLLS = int(END_TIMEOUT_S / _POLL_S)
_LOG_LINES = 8
_LEAST_ARENAS = 2
"""One for the main thread alone makes the others wait for each other."""
_THREADS = (
    "OMP_NUM_THREADS",  # of scikit-learn, XGBoost, LightGBM, torch; OpenBLAS, MKL, numexpr and Arrow read it too
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "PJRT_NPROC",  # JAX on a CPU: XLA's flags leave its pools as large as the host
    "POLARS_MAX_THREADS",
)
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = "sparktrain.training"

_SECRETS = frozenset({"_SPARK_AUTH_SECRET", "SPARK_CONNECT_AUTHENTICATE_TOKEN", token_file.VARIABLE})
_SECRET_PREFIXES = ("PYSPARK_GATEWAY_", "PYTHON_WORKER_FACTORY_", "_PYSPARK_", "_SPARK_SSL_RPC_")
"""Secrets of a Python worker for its JVM, and the paths of tokens: training functions do not get them."""

_live_zygotes: set[int] = set()
"""The zygotes of this process. The process inherits orphans, and needs this list to recognize them."""


class ZygoteLostError(InfraError):
    """The zygote of this agent is gone, and every process below it."""


class ZygoteProcess:
    """One zygote and the processes below it. Apart from `start`, all methods belong to one event loop.

    While it lives, the calling process must not start another child in a session of its own: `close` and a loss would
    kill it as an orphan of the zygote.
    """

    def __init__(
        self,
        scratch: Path,
        sys_path: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        end_timeout_s: float = END_TIMEOUT_S,
    ) -> None:
        self.log_path = scratch / "zygote.log"
        self._scratch = scratch
        self._sys_path = sys_path
        self._answer_timeout_s = answer_timeout_s
        self._end_timeout_s = end_timeout_s
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: AsyncPipe[m.FromZygote] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._answers: deque[asyncio.Future[Answer]] = deque()
        self._members: dict[int, MemberProcess] = {}
        self._other_children: set[int] = set()
        self._lost: ZygoteLostError | None = None
        self._exited = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id of the zygote, after `start`."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, forked: bool = False) -> None:
        """Start the zygote's process, before any gRPC channel exists here, from a thread that outlives the zygote.

        Where `forked`, it is a copy of this process, which has one thread, and has what this one has imported. Blocks
        only for fork and exec. Raises OSError.
        """
        parent_end, child_end = socket.socketpair()
        # Children that exist before are the executor's own: whatever appears later in another session descends from the
        # zygote.
        self._other_children = process_tree.children()
        # The zygote is the subreaper of its members. When it dies itself, what is left below it comes here, and can be
        # found.
        process_tree.inherit_orphans()
        env = clean_environment(os.environ, self._env)
        with child_end, self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(os.getpid())],
                stdin=child_end.fileno(),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._scratch,
                env=env,
                start_new_session=True,
                restore_signals=not forked,
                preexec_fn=partial(_run_here, env, str(os.getpid())) if forked else None,
            )
        _live_zygotes.add(self._process.pid)
        self._control = AsyncPipe(parent_end, m.FromZygote, carries_fds=True)

    async def preload(self, modules: Sequence[str]) -> dict[str, str]:
        """Let the zygote import `modules`; returns those that failed, with reasons. Raises ZygoteLostError."""
        answer = await self._ask(m.Preload(tuple(modules)))
        assert isinstance(answer, m.Preloaded)
        return answer.failed

    async def fork(self) -> "MemberProcess":
        """A new child, waiting for its assignment. May be cancelled: the child ends then. Raises ZygoteLostError."""
        answer = await self._ask(m.Fork())
        assert isinstance(answer, MemberProcess)
        return answer

    async def wait_lost(self) -> None:
        """Return when the zygote and every process below it are gone: it died, or was closed."""
        self._listen()
        await self._exited.wait()

    async def close(self) -> None:
        """End the zygote and every process below it, in any state, within seconds. A second call does nothing."""
        if self._process is None:
            return
        self._listen()
        if self._control is not None:
            self._control.shut()
        try:
            async with asyncio.timeout(self._end_timeout_s):
                await self._exited.wait()
        except TimeoutError:
            self._process.kill()
            await self._exited.wait()

    # ---- messages

    def _send(self, message: m.ToZygote) -> None:
        if self._control is not None:
            self._control.send(message)

    async def _ask(self, message: m.Preload | m.Fork) -> "Answer":
        self._listen()
        if self._lost is not None:
            raise self._lost
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._send(message)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                return await answer
        except asyncio.CancelledError:
            answer.add_done_callback(_disown)
            raise
        except TimeoutError:
            await self.close()
            problem = f"did not answer {type(message).__name__} within {self._answer_timeout_s:g} s, and was ended"
            raise ZygoteLostError(self._described(problem)) from None

    def _listen(self) -> None:
        """Start to receive from the zygote, on the event loop of the first call that waits for it."""
        if self._listening is None:
            path = tuple(map(os.path.abspath, sys.path if self._sys_path is None else self._sys_path))
            self._send(m.SetPaths(path, os.environ.get("PYTHONPATH")))
            self._listening = asyncio.get_running_loop().create_task(self._receive(), name="zygote")

    async def _receive(self) -> None:
        assert self._control is not None
        assert self._process is not None
        try:
            while (message := await self._control.receive()) is not None:
                self._take(message)
        except ProtocolError:
            self._process.kill()
        finally:
            await self._bury(self._process, self._control)

    def _take(self, message: m.FromZygote) -> None:
        match message:
            case m.Exited(pid=pid):
                if (member := self._members.pop(pid, None)) is not None:
                    member.end(message)
            case m.Forked(pid=pid):
                self._adopt(pid)
            case m.Preloaded():
                _answer(self._answers.popleft(), message)

    def _adopt(self, pid: int) -> None:
        assert self._control is not None
        pipe: AsyncPipe[m.FromMember] = AsyncPipe(socket.socket(fileno=self._control.fds.popleft()), m.FromMember)
        member = MemberProcess(pid, pipe, self._send)
        if _answer(self._answers.popleft(), member):
            self._members[pid] = member
        else:
            pipe.close()  # the caller is gone: the child sees its pipe end, and exits

    # ---- the end

    async def _bury(self, process: subprocess.Popen[bytes], control: AsyncPipe[m.FromZygote]) -> None:
        """End the zygote and its orphans, which this process has inherited; then wake all that wait."""
        control.shut()
        if not await _exits(process):
            process.kill()
            await _exits(process)
        control.close()
        _live_zygotes.discard(process.pid)
        await self._end_orphans()
        if not _live_zygotes:
            process_tree.inherit_orphans(False)
        self._lost = ZygoteLostError(self._described(_ending(process.returncode)))
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(self._lost)
        for member in self._members.values():
            member.end(self._lost)
        self._answers.clear()
        self._members.clear()
        self._exited.set()

    async def _end_orphans(self) -> None:
        session = os.getsid(0)
        for _ in range(_POLLS):
            strangers = process_tree.children() - self._other_children - _live_zygotes
            orphans = {pid for pid in strangers if _session(pid) != session}
            if not orphans:
                break
            process_tree.cull(orphans)
            await asyncio.sleep(_POLL_S)

    def _described(self, problem: str) -> str:
        last = "\n".join(f"    {line}" for line in tail_lines(self.log_path, _LOG_LINES))
        lines = f"; its last lines:\n{last}" if last else ""
        return f"the zygote, process {self.pid} on host {socket.gethostname()}, {problem}{lines}"


class MemberProcess:
    """One forked child of a zygote. All methods belong to the zygote's event loop."""

    def __init__(self, pid: int, pipe: AsyncPipe[m.FromMember], send_to_zygote: Callable[[m.ToZygote], None]) -> None:
        self.pid = pid
        self.disconnected = False
        """Whether the process closed its pipe, or sent an invalid message, and was killed for that."""
        self._pipe = pipe
        self._send_to_zygote = send_to_zygote
        self._has_outcome = False
        self._end: m.Exited | ZygoteLostError | None = None
        self._over = asyncio.Event()

    def send(self, message: m.ToMember) -> None:
        """Send `message`; returns at once. A member that is gone does not get it; `receive` and `wait` show that."""
        self._pipe.send(message)

    async def receive(self) -> m.FromMember | None:
        """The member's next message; None after the last. May be cancelled without loss. Raises nothing."""
        try:
            message = await self._pipe.receive()
        except ProtocolError:  # the training function wrote to the pipe
            self._pipe.close()
            self.kill(0.0)
            return None
        self._has_outcome |= isinstance(message, m.FunctionEnded)
        return message

    async def wait(self) -> m.Exited:
        """Wait until the process and its orphans are gone. Raises ZygoteLostError, after that too."""
        await self._over.wait()
        if isinstance(self._end, ZygoteLostError):
            raise self._end
        assert self._end is not None
        return self._end

    @property
    def lost(self) -> bool:
        """Whether it ended with its zygote."""
        return isinstance(self._end, ZygoteLostError)

    def kill(self, grace_s: float) -> None:
        """End the process: SIGTERM, and SIGKILL `grace_s` later; only SIGKILL for 0. Returns at once."""
        if self._end is None:
            self.disconnected |= self._pipe.ended and not self._has_outcome
            self._send_to_zygote(m.Kill(self.pid, grace_s))

    def end(self, how: m.Exited | ZygoteLostError) -> None:
        """Note that the process is gone; the zygote's handle calls this once. Sent messages can still be received."""
        self._end = how
        self._pipe.drain()
        self._over.set()


def _run_here(env: Mapping[str, str], parent: str) -> NoReturn:
    """Run the zygote's program in this process, which was forked for it, as if it had been executed."""
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the end of one of them shows the parent that this process runs
        gc.enable()
        os.environ.clear()
        os.environ.update(env)
        process_tree.name_process("zygote")
        sys.argv = [_PROGRAM, parent]
        runpy.run_module(_PROGRAM, run_name="__main__", alter_sys=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def scratch_root() -> str | None:
    """The folder for a task's files: in a container of YARN its own folder, which YARN removes with the container; None
    for the system's temporary folder."""
    return os.path.abspath("tmp") if "CONTAINER_ID" in os.environ and os.path.isdir("tmp") else None


def resource_limits(cores: int | None) -> dict[str, str]:
    """The environment that limits threads to `cores`, and what allocators keep; None: all cores of the host.

    What the user sets is left out. Without the first, each trial would start threads for all cores of the host, and
    trials side by side would slow each other. Without the second, memory grows with the rows of a stream, which one
    thread frees and another has allocated: glibc has 8 arenas for a core, and Arrow's own allocator a heap a thread.
    """
    limits = {} if cores is None else dict.fromkeys(_THREADS, str(cores))
    limits["MALLOC_ARENA_MAX"] = str(max(_LEAST_ARENAS, cores or available_cores()))
    limits["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    return {name: value for name, value in limits.items() if name not in os.environ}


def agent_environment() -> dict[str, str]:
    """`clean_environment` of this process: for a process beside the zygote."""
    return clean_environment(os.environ, {})


def clean_environment(inherited: Mapping[str, str], additions: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment without Spark's secrets, and with the path of this package."""
    env = {
        name: value
        for name, value in inherited.items()
        if name not in _SECRETS and not name.startswith(_SECRET_PREFIXES)
    }
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, inherited.get("PYTHONPATH"))))
    env.update(additions)
    return env


def _answer(future: "asyncio.Future[Answer]", answer: "Answer") -> bool:
    """Set the answer; returns whether a caller still waits for it."""
    if future.done():
        return False
    future.set_result(answer)
    return True


def _disown(answer: "asyncio.Future[Answer]") -> None:
    """End a child that arrived while its caller was cancelled."""
    if not answer.cancelled() and answer.exception() is None and isinstance(child := answer.result(), MemberProcess):
        child.kill(0.0)


async def _exits(process: subprocess.Popen[bytes]) -> bool:
    for _ in range(_POLLS):
        if process.poll() is not None:
            return True
        await asyncio.sleep(_POLL_S)
    return False


def _ending(status: int | None) -> str:
    if status is None:
        return "does not die of SIGKILL, because it hangs in the kernel"
    if status >= 0:
        return f"exited with code {status}"
    name = signal.Signals(-status).name
    return f"was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


Answer = m.Preloaded | MemberProcess
